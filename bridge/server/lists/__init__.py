"""Lists of what a server has, as callers see them, and how their items are found and run."""

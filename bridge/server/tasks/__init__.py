"""Tasks: calls that outlive their requests, and the stores that keep them."""

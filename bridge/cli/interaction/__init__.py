"""Interaction with the user of a command: lines, forms, questions of tools, progress."""

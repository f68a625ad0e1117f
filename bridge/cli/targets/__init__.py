"""Targets of commands: their forms, and what they offer."""

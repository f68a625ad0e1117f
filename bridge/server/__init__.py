"""Serving: a ToolBox published over the Model Context Protocol."""

"""Conversion of this package's values to MCP JSON and back."""

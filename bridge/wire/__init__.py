"""Values of this package to MCP JSON and back, one file per feature."""

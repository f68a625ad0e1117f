"""Client configuration: mcp.json in every supported format, parsed into values."""

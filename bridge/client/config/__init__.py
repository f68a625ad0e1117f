"""mcp.json in every known format, read into values."""

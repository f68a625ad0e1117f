"""Page in the browser that shows and calls what MCP servers offer (``bridge inspect``)."""

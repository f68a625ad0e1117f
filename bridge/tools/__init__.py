"""What a tool is and how one is run: nothing here knows MCP, HTTP or a chat model."""

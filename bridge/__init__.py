"""Python functions as tools, published over the Model Context Protocol, with MCP on both sides."""

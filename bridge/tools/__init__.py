"""Tools and their execution, independent of MCP, HTTP and chat models."""

"""MCP as values and state machines: no event loop, sockets, HTTP or tools, and nothing of the SDK at run time."""

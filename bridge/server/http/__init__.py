"""The ASGI app: guards, streamable HTTP, SSE, sessions, probes."""

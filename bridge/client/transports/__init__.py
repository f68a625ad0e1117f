"""stdio, streamable HTTP, SSE and memory transports."""

"""Client for remote MCP servers: configuration, connections with automatic reconnection, and remote tools."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

"""Tools and their execution, independent of MCP, HTTP and chat models."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

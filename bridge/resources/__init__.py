"""Resources: data that a server offers to read, and resource templates (MCP, "Resources")."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

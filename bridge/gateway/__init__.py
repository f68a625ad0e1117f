"""Gateway: publishes the tools of remote servers, and local ones, as one server."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

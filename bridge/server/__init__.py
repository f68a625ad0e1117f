"""Serve a ToolBox over the Model Context Protocol."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

"""Skills: folders with instructions for a model, which servers publish and clients read (SEP-2640)."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

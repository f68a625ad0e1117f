"""Events: what happens in a program, which clients of its server subscribe to (SEP-3415)."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

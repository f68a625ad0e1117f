"""AI services: chat models, messages, memory, the tool loop, and interfaces implemented by a model."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

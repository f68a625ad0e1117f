"""Chat models, by provider. Each provider's SDK is imported on first use."""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

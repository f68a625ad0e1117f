"""Limits on the usage of a server by each caller."""

from __future__ import annotations

from bridge.server.limits.limits import Limits, Rate

__all__ = ["Limits", "Rate"]

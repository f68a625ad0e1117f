"""Limits: how much of a server one caller may take, and how many callers share it."""

from __future__ import annotations

from bridge.server.limits.limits import Limits, Rate

__all__ = ["Limits", "Rate"]

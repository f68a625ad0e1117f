"""Middleware for servers, and for the servers of a provider: `bridge.Middleware` is the base class.

    Server(tools, name="notes", middleware=[LoggingMiddleware(), RateLimitMiddleware(100, per_seconds=60)])

The first is the outermost. Those that cache, repeat and limit need the extra ``guards``.
"""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

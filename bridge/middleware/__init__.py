"""Middleware for servers, and for the servers of a provider: `bridge.Middleware` is the base class.

    Server(tools, name="notes", middleware=[LoggingMiddleware(), RateLimitMiddleware(100, per_seconds=60)])

The first is the outermost. Those that cache, repeat and limit need the extra ``guards``.
"""

from __future__ import annotations

from bridge.middleware.caching import CachingMiddleware
from bridge.middleware.errors import ErrorMaskingMiddleware
from bridge.middleware.guards import CircuitBreakerMiddleware, RateLimitMiddleware, RetryMiddleware
from bridge.middleware.logs import LoggingMiddleware, TimingMiddleware
from bridge.protocol.messages import ProtocolError
from bridge.tools.middleware import (
    CompleteRequest,
    GetPromptRequest,
    ListRequest,
    Middleware,
    ReadResourceRequest,
    Request,
    method_of,
    target_of,
)

__all__ = [
    "CachingMiddleware",
    "CircuitBreakerMiddleware",
    "CompleteRequest",
    "ErrorMaskingMiddleware",
    "GetPromptRequest",
    "ListRequest",
    "LoggingMiddleware",
    "Middleware",
    "ProtocolError",
    "RateLimitMiddleware",
    "ReadResourceRequest",
    "Request",
    "RetryMiddleware",
    "TimingMiddleware",
    "method_of",
    "target_of",
]

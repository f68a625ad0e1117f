"""What a tool asks its client, as an observer hears of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from bridge.server.telemetry_middleware import client_of
from bridge.telemetry import switch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mcp.server import ServerRequestContext


def observed_question(method: str, request: ServerRequestContext[Any, Any]) -> AbstractContextManager[object]:
    """A block in which a request is sent to a client, and its answer awaited.

    Its trace needs nothing more: the SDK writes the current one into what it sends.

    Args:
        method: MCP's method.
        request: The client's request, while which it is asked.
    """
    observer = switch.observer()
    return nullcontext() if observer is None else observer.asking(method, None, client_of(request))

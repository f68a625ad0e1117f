"""The HTTP protocol: which of uvicorn's classes reads requests and writes answers, by what is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from bridge.cli.joined_writes import joining
from bridge.hosting.protocols import ConnectionBounds, bounded

if TYPE_CHECKING:
    import asyncio

    from bridge.server.http.guards import PreAsgiHandler

_USUAL_BOUNDS = ConnectionBounds()


def http_protocol(
    direct: PreAsgiHandler | None = None, bounds: ConnectionBounds = _USUAL_BOUNDS
) -> type[asyncio.Protocol]:
    """The fastest protocol there is.

    Args:
        direct: What answers without ASGI; None where nothing may.
        bounds: How many connections there may be, and how long the head of a request.
    """
    if find_spec("httptools") is None:
        from bridge.hosting.h11_protocol import h11_within  # noqa: PLC0415 - as needed

        return joining(bounded(h11_within(bounds), bounds))
    from bridge.hosting.httptools_protocol import protocol_with  # noqa: PLC0415 - as needed

    return joining(bounded(protocol_with(direct), bounds))

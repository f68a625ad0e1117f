"""Leaving: the last look at sockets before they are closed, so that what has come already is not lost with them.

The event loop looks at them once a turn, and a turn may take some milliseconds. Whoever closes a socket on which
something has come since then resets a connection whose client has been let in, or has sent its request.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterable


def last_accepted(listening: socket.socket) -> list[socket.socket]:
    """The connections that wait at a socket; it is to be closed right after this."""
    found: list[socket.socket] = []
    with suppress(OSError):  # there are no more, or no more can be
        while True:
            accepted, _ = listening.accept()
            accepted.setblocking(False)
            found.append(accepted)
    return found


async def leave(connections: Collection[Any], moment_seconds: float) -> None:
    """Close connections as they come to be idle, until there are none.

    Each stays open for a moment after that: its client was told that it may go on with it, unless the answer began
    after the end of the server did.

    Args:
        connections: uvicorn's protocols; those that are closed, by whomever, leave it.
        moment_seconds: How long the moment is, at least.
    """
    while True:
        idle = [connection for connection in connections if _is_idle(connection)]
        await asyncio.sleep(moment_seconds)
        await close_idle(idle)
        if not connections:
            return


async def close_idle(connections: Iterable[Any]) -> None:
    """Close connections that still wait for a request, but for those on which one has come that was not read yet.

    One in each turn of the loop: a connection is closed a turn after it was looked at, and with many in one turn that
    is late.

    Args:
        connections: uvicorn's protocols.
    """
    for connection in tuple(connections):
        transport = connection.transport
        if _is_idle(connection) and not transport.is_closing() and not _has_unread(transport):
            connection.shutdown()
        await asyncio.sleep(0)


def _is_idle(connection: Any) -> bool:
    return connection.cycle is None or connection.cycle.response_complete


def _has_unread(transport: asyncio.BaseTransport) -> bool:
    if not hasattr(select, "poll"):  # Windows: its select takes no more than some hundreds
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))

"""Joined writes: uvicorn's protocols, sending the head of an answer together with its body.

uvicorn writes the two one after the other, and each write is a system call: of a call that takes 45 µs, four.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable


class JoiningTransport:
    """A transport that keeps what is written until more comes, or until the event loop goes on.

    Args:
        transport: Where it is written.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._schedule: Callable[[Callable[[], None]], object] = asyncio.get_running_loop().call_soon
        self._kept = b""

    def write(self, data: bytes) -> None:
        """Write now together with what was kept, or keep it for a moment."""
        if self._kept:
            self.write_whole(data)
        elif data:
            self._kept = data
            self._schedule(self._flush)

    def write_whole(self, data: bytes) -> None:
        """Write now what needs nothing more."""
        kept, self._kept = self._kept, b""
        if not self._transport.is_closing():  # uvloop raises where the client has gone
            self._transport.write(kept + data if kept else data)

    def close(self) -> None:
        """Write what was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._kept:
            self.write_whole(b"")

    def __getattr__(self, name: str) -> Any:
        """Everything else is the transport's own."""
        return getattr(self._transport, name)


def joining(protocol: type[Any]) -> type[asyncio.Protocol]:
    """One of uvicorn's protocols, over a `JoiningTransport`."""

    class JoiningProtocol(protocol):  # type: ignore[misc]  # known only when it is called
        """A protocol over joined writes."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            joining = JoiningTransport(cast("asyncio.Transport", transport))
            super().connection_made(joining)

    return cast("type[asyncio.Protocol]", JoiningProtocol)

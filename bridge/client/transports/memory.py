"""Transport of a server in this process, for tests and embedded servers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.transports.link import Link
from bridge.client.transports.transport import Transport
from bridge.protocol.peer import PeerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from mcp.shared.memory import MessageStream

    from bridge.client.transports.link import LinkOptions
    from bridge.protocol.peer import PendingRequest

_CLOSE_SECONDS = 2.0
"""Seconds that a server has to end after its input was closed."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTransport(Transport):
    """A server in this process."""

    server: Any
    """The SDK's low-level ``Server`` (for example the ``server`` of a `bridge.server.publisher.Publisher`) or
    ``MCPServer``."""

    @property
    def kind(self) -> str:
        """Kind of the link."""
        return MemoryLink.kind

    def redacted(self) -> str:
        """A description of the address."""
        return "this process"

    def scrub(self, text: str) -> str:
        """Return the text unchanged: there are no secrets."""
        return text

    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:  # noqa: ARG002
        """Create the link."""
        return (MemoryLink(self.server, options),)

    def __repr__(self) -> str:
        return "MemoryTransport(…)"


class MemoryLink(Link):
    """Message streams of a server of the SDK, which runs in a task of the session.

    The server handles each message with the context variables of its sender, such as the authenticated caller; a
    connection may be shared by callers, and was opened by only one of them.
    """

    kind = "memory"

    def __init__(self, server: Any, options: LinkOptions) -> None:
        super().__init__()
        self._server = getattr(server, "_lowlevel_server", server)
        self._events = options.events
        self._streams: MessageStream | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the server."""
        from mcp.shared.memory import create_client_server_memory_streams  # noqa: PLC0415 - the server is one of the SDK

        has_ended = anyio.Event()

        async def serve() -> None:
            try:
                await self._server.run(*served, self._server.create_initialization_options())
            finally:
                has_ended.set()
                self._events.peer_ended()

        async with create_client_server_memory_streams() as (streams, served), anyio.create_task_group() as tasks:
            self._streams = incoming, outgoing = streams
            tasks.start_soon(serve)
            tasks.start_soon(self._read, incoming)
            try:
                yield
            finally:
                await outgoing.aclose()
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await has_ended.wait()
                tasks.cancel_scope.cancel()

    async def _read(self, incoming: Any) -> None:
        async for item in incoming:
            if not isinstance(item, Exception):
                related = getattr(item.metadata, "related_request_id", None)
                of = self._events.pending().get(related) if isinstance(related, int) else None
                self._events.receive(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode(), of)
                await self._events.delivered()

    async def send(self, request: PendingRequest) -> None:
        """Send a request."""
        request.is_sent = True
        try:
            await self._write(request.text)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            lost = PeerLostError("the server has ended")
            lost.__cause__ = error
            request.fail(lost)

    async def post(self, text: bytes) -> None:
        """Send a message that has no response."""
        try:
            await self._write(text)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._events.suspect()

    async def _write(self, text: bytes) -> None:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - the server is one of the SDK
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - likewise

        assert self._streams is not None
        _, outgoing = self._streams
        await outgoing.send(SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False)))

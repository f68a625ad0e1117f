"""Transport of a server in this process, for tests and embedded servers."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.transports.link import Link
from bridge.client.transports.transport import Transport
from bridge.protocol.peer import PeerLostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from mcp.shared.memory import MessageStream

    from bridge.client.transports.link import LinkEvents, LinkOptions
    from bridge.protocol.messages import MessageId
    from bridge.protocol.peer import PendingRequest

_CLOSE_SECONDS = 2.0
"""Seconds that a server has to end after its input was closed."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTransport(Transport):
    """A server in this process."""

    server: Any
    """A `bridge.server.server.Server`, or the SDK's low-level ``Server`` or ``MCPServer``."""

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
        link = MemoryLink if hasattr(self.server, "connected") else SdkLink
        return (link(self.server, options),)

    def __repr__(self) -> str:
        return "MemoryTransport(…)"


class MemoryLink(Link):
    """Link to a server.

    The server handles each message with the context variables of its sender, such as the authenticated caller; a
    connection may be shared by callers, and was opened by only one of them.
    """

    kind = "memory"

    def __init__(self, server: Any, options: LinkOptions) -> None:
        super().__init__()
        self._server = server
        self._events = options.events
        self._received: deque[tuple[bytes, MessageId | None]] = deque()
        self._changed = anyio.Event()
        self._send: Callable[[bytes], None] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect to the server."""
        async with anyio.create_task_group() as tasks, self._server.connected(self._take, self._drained) as send:
            self._send = send
            tasks.start_soon(self._deliver)
            try:
                yield
            finally:
                self._send = None
                tasks.cancel_scope.cancel()

    def _take(self, message: bytes, related: MessageId | None) -> None:
        self._received.append((message, related))
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _drained(self) -> None:
        while self._received:
            await self._changed.wait()

    async def _deliver(self) -> None:
        while True:
            while self._received:
                message, related = self._received.popleft()
                if not self._received:
                    self._note_change()
                receive(self._events, message, related)
                await self._events.delivered()
            await self._changed.wait()

    async def send(self, request: PendingRequest) -> None:
        """Send a request."""
        request.is_sent = True
        if self._send is None:
            request.fail(PeerLostError("the server has ended"))
        else:
            self._send(request.text)

    async def post(self, text: bytes) -> None:
        """Send a message that has no response."""
        if self._send is None:
            self._events.suspect()
        else:
            self._send(text)


class SdkLink(Link):
    """Message streams of a server of the SDK, which runs in a task of the session.

    It handles each message with the context variables of its sender, as `MemoryLink`.
    """

    kind = "memory"

    def __init__(self, server: Any, options: LinkOptions) -> None:
        super().__init__()
        self._server = getattr(server, "_lowlevel_server", None) or getattr(server, "_mcp_server", server)
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
                receive(self._events, item.message.model_dump_json(by_alias=True, exclude_unset=True).encode(), related)
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


def receive(events: LinkEvents, message: bytes, related: object) -> None:
    """Give a session a message, and the request to which it is related."""
    events.receive(message, events.pending().get(related) if isinstance(related, int) else None)

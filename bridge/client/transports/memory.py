"""Transport of a server in this process, for tests and embedded servers."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.client.transports.channel import Channel
from bridge.client.transports.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.client.transports.channel import ChannelOptions


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTransport(Transport):
    """A server in this process."""

    server: Any
    """The SDK's low-level ``Server`` (for example the ``server`` of a `bridge.server.publisher.Publisher`) or
    ``MCPServer``."""

    @property
    def kind(self) -> str:
        """Kind of the channel."""
        return MemoryChannel.kind

    def redacted(self) -> str:
        """A description of the address."""
        return "this process"

    def scrub(self, text: str) -> str:
        """Return the text unchanged: there are no secrets."""
        return text

    def channels(self, options: ChannelOptions, last_kind: str | None) -> Sequence[Channel]:  # noqa: ARG002
        """Create the channel."""
        return (MemoryChannel(self.server),)

    def __repr__(self) -> str:
        return "MemoryTransport(…)"


class MemoryChannel(Channel):
    """A server to which the SDK's client passes messages directly."""

    kind = "memory"
    records_requests = False

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._server = server

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Return the server."""
        return nullcontext(self._server)

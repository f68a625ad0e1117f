"""Telemetry of a session: the server's labels, and the handshake.

Handshake requests are sent by the SDK itself, so they are timed in the message streams, without spans.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from mcp_types import REQUEST_TIMEOUT, JSONRPCError, JSONRPCRequest, JSONRPCResponse

from bridge.telemetry.conventions import SERVER_ADDRESS, SERVER_PORT
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig
    from bridge.client.transports.channel import Channel
    from bridge.telemetry.observer import Observer


def peer_of(config: ServerConfig, channel: Channel, protocol_version: str) -> Peer:
    """Describe a server and its channel; the protocol version is empty before the handshake."""
    address: tuple[tuple[str, str | int], ...] = ()
    if (host_and_port := config.transport.host_and_port) is not None:
        address = ((SERVER_ADDRESS, host_and_port[0]), (SERVER_PORT, host_and_port[1]))
    return Peer(channel.kind, protocol_version, config.name, address)


class HandshakeTelemetry:
    """Reports handshake requests to an observer, one after the other."""

    def __init__(self, observer: Observer, peer: Peer) -> None:
        self._observer = observer
        self._peer = peer
        self._asked: tuple[object, str, float] | None = None

    def sent(self, message: object) -> None:
        """Handle a sent message; a new request ends the previous one."""
        if isinstance(message, JSONRPCRequest):
            self.ended(REQUEST_TIMEOUT)
            self._asked = message.id, message.method, perf_counter()

    def received(self, message: object) -> None:
        """Handle a received message."""
        if self._asked is None or not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        if message.id == self._asked[0]:
            self.ended(message.error.code if isinstance(message, JSONRPCError) else None)

    def ended(self, error: BaseException | int | None) -> None:
        """Report the pending request, if any, with its exception or error code; None for a result."""
        if self._asked is not None:
            _, method, start = self._asked
            self._asked = None
            self._observer.asked(method, self._peer, perf_counter() - start, error)

"""State of outgoing requests, for transports and telemetry.

- Handshake requests are sent by the SDK itself, so they are timed in the message streams, without spans.
- Cancelled calls are remembered: a server may go on with them, and an unattributed notification or request may belong
  to one of them. A server that stops on cancellation does not respond (MCP, Cancellation), so each counts for
  `GIVEN_UP_SECONDS`.
- Transports run in the sender's context, so each can record on the `OutgoingRequest` if the server may have run it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from mcp_types import REQUEST_TIMEOUT, JSONRPCError, JSONRPCRequest, JSONRPCResponse

from bridge.client.config.servers import HttpTransport
from bridge.telemetry.conventions import SERVER_ADDRESS, SERVER_PORT
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.call import Call
    from bridge.telemetry.observer import Observer
    from bridge.tools.context import InvocationContext

GIVEN_UP_SECONDS = 10.0
"""Seconds after its cancellation for which an unanswered call counts."""

MAX_REMEMBERED = 1000
"""Maximum cancelled calls that are remembered; beyond it, no message is attributed."""

_PORTS = {"http": 80, "https": 443}

NOBODY = Peer("memory", "")
"""Peer of a session before its handshake."""


class HandshakeTelemetry:
    """Reports handshake requests to an observer, one after the other.

    Args:
        observer: Receives each request.
        peer: The server.
    """

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
        """Report the pending request, if any.

        Args:
            error: The exception or error code; None for a result.
        """
        if self._asked is not None:
            _, method, start = self._asked
            self._asked = None
            self._observer.asked(method, self._peer, perf_counter() - start, error)


class _GivenUp(NamedTuple):
    peer: object | None
    identity: tuple[object, ...] | None
    at: float


class CancelledCalls:
    """Cancelled calls of one session, until their response or expiry."""

    def __init__(self) -> None:
        self._calls: dict[OutgoingRequest, _GivenUp] = {}  # oldest first
        self._full_at: float | None = None

    def add(self, attempt: OutgoingRequest) -> None:
        """Add a call whose cancellation was sent."""
        if attempt.call is None or not attempt.sent:
            return
        now = self._forget_old()
        if len(self._calls) < MAX_REMEMBERED:
            context = attempt.call.context
            self._calls[attempt] = _GivenUp(context.peer, _local_identity(context), now)
        else:
            self._full_at = now

    def answered(self, request_id: object) -> None:
        """Remove the call of a response."""
        self._forget_old()
        for attempt in tuple(self._calls):
            if attempt.request_id is not None and str(attempt.request_id) == str(request_id):
                del self._calls[attempt]

    def are_all_of(self, context: InvocationContext) -> bool:
        """True if all are of the context's remote client, or of equal local contexts."""
        self._forget_old()
        if self._full_at is not None:
            return False
        if not self._calls:
            return True
        peer, identity = context.peer, _local_identity(context)
        if peer is None:
            return identity is not None and all(each.identity == identity for each in self._calls.values())
        return all(each.peer is peer for each in self._calls.values())

    def _forget_old(self) -> float:
        """Remove expired entries; returns the current time."""
        now = monotonic()
        for attempt, given_up in tuple(self._calls.items()):
            if now - given_up.at < GIVEN_UP_SECONDS:
                break
            del self._calls[attempt]
        if self._full_at is not None and now - self._full_at >= GIVEN_UP_SECONDS:
            self._full_at = None
        return now


def _local_identity(context: InvocationContext) -> tuple[object, ...] | None:
    """Fields that identify a local call; None for a call of a remote client."""
    return None if context.has_listener else (context.caller, context.memory_id, context.parameters)


class OutgoingRequest:
    """One outgoing request.

    Attributes:
        call: The call that it belongs to; None for the connection's own requests.
        sent: True if the server may have started to run it.
        status: HTTP status of the response; None without one.
        cut_off: True if the stream of the response was lost.
        expired: True if the server no longer knows the session.
        request_id: ID of the request, after its cancellation was sent.
        failure: Error of the transport; None if there is none, or the transport does not report it.
    """

    __slots__ = ("__weakref__", "call", "cut_off", "expired", "failure", "request_id", "sent", "status")

    def __init__(self, call: Call | None = None, *, sent: bool = False) -> None:
        self.call = call
        self.sent = sent
        self.status: int | None = None
        self.cut_off = False
        self.expired = False
        self.request_id: object = None
        self.failure: Exception | None = None


current_request: ContextVar[OutgoingRequest | None] = ContextVar("bridge.client.current_attempt", default=None)
"""The request in whose context this code runs; None for none."""


@contextmanager
def as_current_request(attempt: OutgoingRequest) -> Iterator[None]:
    """Set the current request during this block."""
    token = current_request.set(attempt)
    try:
        yield
    finally:
        current_request.reset(token)


def peer_of(config: ServerConfig, kind: str | None, protocol_version: str) -> Peer:
    """Describe a server for telemetry.

    Args:
        config: The server.
        kind: Transport kind.
        protocol_version: Protocol version.
    """
    address: tuple[tuple[str, str | int], ...] = ()
    if isinstance(config.transport, HttpTransport):
        url = urlsplit(config.transport.url)
        address = ((SERVER_ADDRESS, url.hostname or ""), (SERVER_PORT, url.port or _PORTS.get(url.scheme, 0)))
    return Peer(kind or "memory", protocol_version, config.name, address)

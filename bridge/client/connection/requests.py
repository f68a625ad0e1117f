"""Outgoing requests as transports and telemetry see them.

Greeting: the requests by which a server is greeted, as an observer hears of them.

The SDK sends them from within what opens its client, so they are timed where messages go by: from when one is handed
to the transport until its answer comes out of it. They have no spans: what is begun while one was open would be of it.

Abandoned: calls that nobody waits for any more, and with which their server may go on all the same.

Where a transport does not name the call on whose behalf a server speaks, it may speak for one of these: what it says or
asks is then brought to nobody but the client whose calls they were. A server that heeds a cancellation does not answer
the call (MCP, cancellation), and so never tells that it is over: such a call counts for `GIVEN_UP_SECONDS`.

Attempt: one request on its way, and what its transport saw of it.

Transports work in the context of whoever sends (the SDK's HTTP transports, and ours for children), so what they see
can be told to the request's own attempt: whether the server may have begun to run it is then a fact, and no guess.

Peers: a server as telemetry tells of it.
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
"""How long after its cancellation went out a call counts that is not answered."""

MAX_REMEMBERED = 1000
"""Beyond so many calls that were given up within that time, nobody can be told from anybody else."""

_PORTS = {"http": 80, "https": 443}

NOBODY = Peer("memory", "")
"""The peer of a link that has not been greeted."""


class HandshakeTelemetry:
    """What a server is asked until it is greeted, one request after the other.

    Args:
        observer: Who is told of each.
        peer: The server.
    """

    def __init__(self, observer: Observer, peer: Peer) -> None:
        self._observer = observer
        self._peer = peer
        self._asked: tuple[object, str, float] | None = None

    def sent(self, message: object) -> None:
        """A message goes to the server; where it is a request, nobody waits for the one before it any more."""
        if isinstance(message, JSONRPCRequest):
            self.ended(REQUEST_TIMEOUT)
            self._asked = message.id, message.method, perf_counter()

    def received(self, message: object) -> None:
        """A message came from the server."""
        if self._asked is None or not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        if message.id == self._asked[0]:
            self.ended(message.error.code if isinstance(message, JSONRPCError) else None)

    def ended(self, error: BaseException | int | None) -> None:
        """What was asked last, if anything, was answered, or will not be.

        Args:
            error: What was raised instead of an answer, or the code of an error of the protocol; None for a result.
        """
        if self._asked is not None:
            _, method, start = self._asked
            self._asked = None
            self._observer.asked(method, self._peer, perf_counter() - start, error)


class _GivenUp(NamedTuple):
    peer: object | None
    words: tuple[object, ...] | None
    at: float


class CancelledCalls:
    """The calls over one link that were given up after they were sent, until they are answered or time has passed."""

    def __init__(self) -> None:
        self._calls: dict[OutgoingRequest, _GivenUp] = {}  # the oldest first
        self._full_at: float | None = None

    def add(self, attempt: OutgoingRequest) -> None:
        """Remember one whose cancellation has gone out."""
        if attempt.call is None or not attempt.sent:
            return
        now = self._forget_old()
        if len(self._calls) < MAX_REMEMBERED:
            context = attempt.call.context
            self._calls[attempt] = _GivenUp(context.peer, _words(context), now)
        else:
            self._full_at = now

    def answered(self, request_id: object) -> None:
        """Forget the one that has been answered: nothing more is said for it."""
        self._forget_old()
        for attempt in tuple(self._calls):
            if attempt.request_id is not None and str(attempt.request_id) == str(request_id):
                del self._calls[attempt]

    def are_all_of(self, context: InvocationContext) -> bool:
        """Whether there are none but those of this client, or of this program where it says the same of itself."""
        self._forget_old()
        if self._full_at is not None:
            return False
        if not self._calls:
            return True
        peer, words = context.peer, _words(context)
        if peer is None:
            return words is not None and all(each.words == words for each in self._calls.values())
        return all(each.peer is peer for each in self._calls.values())

    def _forget_old(self) -> float:
        """Forget those that count no longer; returns the time."""
        now = monotonic()
        for attempt, given_up in tuple(self._calls.items()):
            if now - given_up.at < GIVEN_UP_SECONDS:
                break
            del self._calls[attempt]
        if self._full_at is not None and now - self._full_at >= GIVEN_UP_SECONDS:
            self._full_at = None
        return now


def _words(context: InvocationContext) -> tuple[object, ...] | None:
    """What a call of this program's own says of itself; None for one that came from elsewhere."""
    return None if context.has_listener else (context.caller, context.memory_id, context.parameters)


class OutgoingRequest:
    """One request on its way.

    Attributes:
        call: The call that it belongs to; None for what the connection asks on its own account.
        sent: The server may have begun to run it.
        status: The HTTP status of the answer; None without one.
        cut_off: What the answer would come by has broken.
        expired: The server no longer knows the session.
        request_id: The id of the request, once its server has been told that nobody waits for its answer.
        failure: What went wrong on the way; None where nothing did, or where the transport does not see it.
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
"""The attempt in whose context this code runs; None for what belongs to none."""


@contextmanager
def as_current_request(attempt: OutgoingRequest) -> Iterator[None]:
    """What is sent in this block is of this attempt."""
    token = current_request.set(attempt)
    try:
        yield
    finally:
        current_request.reset(token)


def peer_of(config: ServerConfig, kind: str | None, protocol_version: str) -> Peer:
    """A server, as telemetry tells of it.

    Args:
        config: The server.
        kind: How it is reached.
        protocol_version: The revision that it speaks.
    """
    address: tuple[tuple[str, str | int], ...] = ()
    if isinstance(config.transport, HttpTransport):
        url = urlsplit(config.transport.url)
        address = ((SERVER_ADDRESS, url.hostname or ""), (SERVER_PORT, url.port or _PORTS.get(url.scheme, 0)))
    return Peer(kind or "memory", protocol_version, config.name, address)

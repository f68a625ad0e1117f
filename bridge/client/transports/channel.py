"""Channels: how one session reaches its server, and the outcome of its requests.

A `bridge.client.transports.transport.Transport` creates the channels to try. The session receives a channel's events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    import httpx2
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import JSONRPCMessage, RequestId

    from bridge.client.auth.errors import SignInError
    from bridge.client.connection.call import Call
    from bridge.types import Json

CONNECTION_CLOSED = -32000
"""The SDK's code for a response that can no longer arrive."""


@dataclass(eq=False)
class OutgoingRequest:
    """One outgoing request. Most attributes keep their defaults, which stay in the class: that is faster than slots."""

    call: Call | None = None
    """The call that it belongs to; None for the connection's own requests."""
    sent: bool = False
    """True if the server may have started to run it."""
    status: int | None = field(default=None, init=False)
    """HTTP status of the response; None without one."""
    cut_off: bool = field(default=False, init=False)
    """True if the stream of the response was lost."""
    expired: bool = field(default=False, init=False)
    """True if the server no longer knows the session."""
    request_id: object = field(default=None, init=False)
    """ID of the request, after its cancellation was sent."""
    failure: Exception | None = field(default=None, init=False)
    """Error of the transport; None if there is none, or the transport does not report it."""
    plain_id: int | None = field(default=None, init=False)
    """ID of the request, if it was sent without the SDK's session."""
    arguments: bytes | None = field(default=None, init=False)
    """JSON of the arguments in its parameters; None if they are not written yet."""
    is_passed_on: bool = field(default=False, init=False)
    """True for the call of another client: the text of its result is kept, in a `bridge.wire.received.Received`."""
    capabilities: Mapping[str, Any] | None = field(default=None, init=False)
    """Capabilities that it declares; None for those of its session."""
    begun: object = field(default=None, init=False)
    """The `BegunRequest`, if it was sent before the task that waits for its response; None otherwise."""
    received: httpx2.Response | None = field(default=None, init=False)
    """Response to it that the SDK's session must read; None for none."""


current_request: ContextVar[OutgoingRequest | None] = ContextVar("bridge.client.current_request", default=None)
"""The request in whose context this code runs; None for none. Transports run in the sender's context."""


@contextmanager
def as_current_request(outgoing: OutgoingRequest) -> Iterator[None]:
    """Set the current request during this block."""
    token = current_request.set(outgoing)
    try:
        yield
    finally:
        current_request.reset(token)


ProgressListener: TypeAlias = "ProgressFnT"
"""Receives progress notifications of a request."""


class RequestSender(Protocol):
    """Sends one request over an open channel, without the SDK's session; see `Channel.request_sender`."""

    def __call__(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressListener | None
    ) -> Coroutine[Any, Any, Json | None] | None:
        """Send a request and return its result; None, before anything is sent, to leave it to the SDK's session.

        The coroutine returns None if the SDK's session must continue: by reading `OutgoingRequest.received`, or else by
        sending the request, which the server did not run.

        The outcome is recorded on the outgoing request: whether it was sent, its HTTP status, its transport error.

        Raises:
            MCPError: The server responded with an error, or the connection was lost (`CONNECTION_CLOSED`).
            ValidationError: The result is not valid MCP.
        """


RequestBeginner: TypeAlias = "Callable[[str, Json, Any], bool]"
"""Sends a `BegunRequest` with a method and parameters; returns False, before anything is sent, if it would wait."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason of a failure, as it is shown to users."""

    reason: str
    """The reason, without the server's name."""
    hint: str | None = None
    """The remedy."""
    is_permanent: bool = False
    """True if another attempt cannot succeed."""
    is_auth: bool = False
    """True if credentials are missing or refused."""


class TransportFailedError(Exception):
    """A transport failed for a known cause."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.reason)
        self.cause = cause


class ChannelEvents(Protocol):
    """Receives the events of a channel; the session that uses it."""

    @property
    def is_lost(self) -> bool:
        """True if the session ended unintentionally."""

    def undelivered(self, error: Exception) -> None:
        """A message could not be sent; later ones may be."""

    def stream_lost(self, error: Exception) -> None:
        """No message can be received any more."""

    def peer_ended(self) -> None:
        """The server's process ended or closed its streams."""

    def parsed(self, message: JSONRPCMessage, outgoing: OutgoingRequest | None) -> str:
        """Store a large message that was parsed before the SDK; returns the key by which it is fetched."""

    def handed_over(self, outgoing: OutgoingRequest, request_id: RequestId) -> None:
        """The SDK reads the response to a request that was sent without it, under this ID of its own."""

    def suspect(self) -> None:
        """Request a health check."""

    def expired(self) -> None:
        """The server no longer knows the session."""

    def unauthorized(self, status: int, why: SignInError | None = None) -> None:
        """The server demands credentials."""

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a background task while the session lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """Settings of a session's channel."""

    server: str
    """The server's name in the configuration."""
    events: ChannelEvents
    """Receives the channel's events."""
    connect_seconds: float
    """Maximum seconds for a TCP connection."""
    auth: httpx2.Auth | None = None
    """Authentication of HTTP requests; None to use the transport's."""
    fast_path: bool = True
    """Send plain requests without the SDK's session, if the channel can."""


class Channel(ABC):
    """One attempt to reach a server, and its state while the session lasts.

    Attributes:
        kind: Name of the channel, as in `ConnectionStatus.transport`.
        is_closed: True after the channel was closed: no response can be received any more.
    """

    kind: ClassVar[str]
    is_legacy: ClassVar[bool] = False
    """True if the channel carries only the handshake era."""
    records_requests: ClassVar[bool] = True
    """True if the outcome of each request is recorded on its `OutgoingRequest`."""
    finishes_calls: ClassVar[bool] = False
    """True if running calls can still be answered after the session was lost."""
    mirrors_arguments: ClassVar[bool] = False
    """True if tools may demand that arguments are repeated in headers (MCP 2026-07-28, ``x-mcp-header``)."""

    def __init__(self) -> None:
        self.is_closed = False
        self.mirrored_tools: set[str] = set()
        """Tools that demand it."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[Any]:
        """Open the channel in this block; closed by the same task.

        Yields:
            The argument of the SDK's ``Client``: a context manager that yields two message streams, or a server.

        Raises:
            TransportFailedError: The channel cannot be opened.
        """

    def request_sender(self, client: Client) -> RequestSender | None:  # noqa: ARG002 - for faster channels
        """Return a faster way to send requests than the SDK's session, after its handshake; None if there is none."""
        return None

    def request_beginner(self) -> RequestBeginner | None:
        """Return what sends requests without a task, after the handshake; None if there is nothing."""
        return None

    def is_refused(self) -> bool:
        """True if the failed handshake indicates that the server requires the transport's next channel."""
        return False

    @property
    def exit_code(self) -> int | None:
        """Exit code of the server's process; None if it runs or is unknown."""
        return None

    @property
    def last_words(self) -> tuple[str, ...]:
        """Last lines of the process's standard error, without secrets."""
        return ()

    async def settle(self, seconds: float) -> None:  # noqa: B027 - only processes settle
        """Wait until a process that closed its output has ended, for a maximum number of seconds."""

    def explain_start(self, error: BaseException) -> Cause | None:  # noqa: ARG002 - for channels that know
        """Explain a failed handshake by the channel's state; None if the error itself is the cause."""
        return None

    def explain_error(self, error: BaseException) -> Cause | None:  # noqa: ARG002 - likewise
        """Explain an error of this channel; None for errors that any channel may have."""
        return None

    def explain_loss(self) -> Cause:
        """Explain a lost session whose channel raised no error."""
        return Cause("the connection was lost")

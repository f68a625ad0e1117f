"""Links: how one session reaches its server.

    Transport ── address and settings (`bridge.client.transports.transport`)
        ╰── Link ── one attempt to reach the server, and its state while the session lasts

A link turns messages into bytes and back. It sends the text of a `bridge.protocol.peer.PendingRequest`, records on it
whether it may have reached the server, and gives each received message to the session.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    import httpx2

    from bridge.client.auth.errors import SignInError
    from bridge.protocol.peer import PeerLostError, PendingRequest


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


class SessionExpiredError(Exception):
    """The server no longer knows the session."""


class HttpStatusError(ProtocolError):
    """A server or proxy failed with an HTTP status and no protocol error."""

    def __init__(self) -> None:
        super().__init__(INTERNAL_ERROR, "Server returned an error response")


class LinkEvents(Protocol):
    """Receives the messages and events of a link; the session that uses it."""

    @property
    def is_lost(self) -> bool:
        """True if the session ended unintentionally."""

    @property
    def version(self) -> str:
        """Protocol version of requests; empty before the handshake."""

    def receive(self, text: bytes, of: PendingRequest | None = None) -> None:
        """Handle a message, and the request on whose own stream it was received; None if the stream carries all.

        Raises:
            ResponseTooLongError: It has too many values.
            ValueError: It is not a message.
        """

    async def delivered(self) -> None:
        """Wait before further messages are read, if too many are being delivered."""

    def undelivered(self, error: Exception) -> None:
        """A message could not be sent; later ones may be."""

    def stream_lost(self, error: Exception) -> None:
        """No message can be received any more."""

    def peer_ended(self) -> None:
        """The server's process ended or closed its streams."""

    def suspect(self) -> None:
        """Request a health check."""

    def expired(self) -> None:
        """The server no longer knows the session."""

    def unauthorized(self, status: int, why: SignInError | None = None) -> None:
        """The server demands credentials."""

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a background task while the session lasts."""

    def responded(self, text: bytes) -> PendingRequest | None:
        """Return the request that a text responds to, if that is known before it is parsed; None otherwise."""

    def pending(self) -> Mapping[int, PendingRequest]:
        """Requests without an outcome, by ID."""

    def fail_pending(self, error: PeerLostError) -> None:
        """Fail all requests, because no response can be received any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Settings of a session's link."""

    server: str
    """The server's name in the configuration."""
    events: LinkEvents
    """Receives the link's messages and events."""
    connect_seconds: float
    """Maximum seconds for a TCP connection."""
    auth: httpx2.Auth | None = None
    """Authentication of HTTP requests; None to use the transport's."""


class Link(ABC):
    """One attempt to reach a server, and its state while the session lasts."""

    kind: ClassVar[str]
    """Name of the kind, as in `ConnectionStatus.transport`."""
    is_legacy: ClassVar[bool] = False
    """True if it carries only the handshake era."""
    finishes_calls: ClassVar[bool] = False
    """True if running calls can still be answered after the session was lost."""
    mirrors_arguments: ClassVar[bool] = False
    """True if tools may demand that arguments are repeated in headers (MCP 2026-07-28, ``x-mcp-header``)."""
    cancels_by_closing: ClassVar[bool] = False
    """True if a request of the modern era is cancelled by closing its response, and not by a notification."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[None]:
        """Open the link in this block; closed by the same task.

        Raises:
            TransportFailedError: It cannot be opened.
        """

    def send_now(self, request: PendingRequest) -> bool:  # noqa: ARG002 - for links that can
        """Send a request without waiting; return False, before anything is sent, if that is not possible."""
        return False

    @abstractmethod
    async def send(self, request: PendingRequest) -> None:
        """Send a request; may last until its outcome. A failure is the request's outcome, and is not raised."""

    @abstractmethod
    async def post(self, text: bytes) -> None:
        """Send a message that has no response; a failure is only reported to the session."""

    def abandon(self, request: PendingRequest) -> None:  # noqa: B027 - for links with a response of its own
        """Drop what comes for a request that nothing waits for any more."""

    def agreed(self) -> None:  # noqa: B027 - for links that use it
        """Both sides have agreed on a version: the handshake is complete."""

    async def listening(self) -> None:  # noqa: B027 - for links with a stream for it
        """Wait briefly until what the server sends of itself is received, or cannot be."""

    @property
    def reason(self) -> str:
        """Reason in the server's words for which it has refused the last message; empty without one."""
        return ""

    def is_refused(self) -> bool:
        """True if the failed handshake indicates that the server requires the transport's next link."""
        return False

    @property
    def pid(self) -> int | None:
        """Process ID of the server, if it is a child process."""
        return None

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

    def explain_start(self, error: BaseException) -> Cause | None:  # noqa: ARG002 - for links that know
        """Explain a failed handshake by the link's state; None if the error itself is the cause."""
        return None

    def explain_error(self, error: BaseException) -> Cause | None:  # noqa: ARG002 - likewise
        """Explain an error of this link; None for errors that any link may have."""
        return None

    def explain_loss(self) -> Cause:
        """Explain a lost session whose link raised no error."""
        return Cause("the connection was lost")


class NoLink(Link):
    """Link of a session that was not opened."""

    kind = ""

    def open(self) -> NoReturn:
        """Raise: there is nothing to open."""
        raise AssertionError

    async def send(self, request: PendingRequest) -> NoReturn:
        """Raise, too."""
        raise AssertionError(request)

    async def post(self, text: bytes) -> NoReturn:
        """Raise, too."""
        raise AssertionError(text)

"""Connection states, reconnect policy and listeners."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, Self, TypeAlias

import anyio

from bridge.errors import ServerAuthError
from bridge.tools.annotated_checks import check_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio.abc import TaskStatus

    from bridge.errors import ServerError, ServerUnavailableError
    from bridge.protocol.negotiation import Agreement
    from bridge.protocol.peer import PendingRequest
    from bridge.types import Feature, Json

Era: TypeAlias = Literal["handshake", "modern"]
"""Era of the protocol: up to 2025-11-25, or from 2026-07-28 on."""

MessageDirection: TypeAlias = Literal["sent", "received"]
"""Direction of a JSON-RPC message, seen from this client."""

MAX_BACK_OFF_SECONDS = 300.0
"""Maximum seconds between attempts to reconnect, unless a call wants the server."""

_logger = logging.getLogger("bridge.client")

News = ParamSpec("News")


class MessageHandler(Protocol):
    """Handles what the server sends of itself; the second argument is the request on whose stream it was received."""

    def on_request(self, message: Json, of: PendingRequest | None) -> None:
        """Handle a request of the server."""

    def on_notification(self, message: Json, of: PendingRequest | None) -> None:
        """Handle a notification."""

    def on_malformed(self, message: Json) -> None:
        """Handle a notification that lacks what its method needs."""


class ConnectionState(Enum):
    """State of a connection."""

    CLOSED = "closed"
    """Not opened yet, or closed."""
    IDLE = "idle"
    """The process does not run, and is started by the next call; its lists are those of the last time."""
    CONNECTING = "connecting"
    """Opened, not ready yet."""
    READY = "ready"
    """The handshake is complete; calls are sent immediately."""
    DEGRADED = "degraded"
    """Lost after it was ready; reconnecting. The tools stay known."""
    NEEDS_AUTH = "needs_auth"
    """The server demands credentials; the next call tries again."""
    FAILED = "failed"
    """Never ready so far, or lost for a permanent reason. The next call tries again."""

    @classmethod
    def after(cls, error: ServerError, *, was_ready: bool) -> ConnectionState:
        """Return the state of a connection after a failure."""
        if isinstance(error, ServerAuthError):
            return cls.NEEDS_AUTH
        return cls.DEGRADED if was_ready and not error.failure.is_permanent else cls.FAILED


class SessionEnd:
    """Reason of a session's end, and the next session that waits for it."""

    def __init__(self, waiting: TaskStatus[ServerUnavailableError]) -> None:
        self.error: ServerUnavailableError | None = None
        """The reason; None before the end."""
        self.is_reported = False
        """True if the next session may be opened."""
        self._waiting = waiting

    def report(self, error: ServerUnavailableError) -> None:
        """Let the next session be opened."""
        self.is_reported = True
        self._waiting.started(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server's description of itself. Untrusted."""

    name: str | None = None
    """None if not given, which the modern era allows."""
    version: str | None = None
    title: str | None = None
    """Display name."""
    instructions: str | None = None
    """Instructions for a model."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """MCP's ServerCapabilities."""

    @classmethod
    def of(cls, agreement: Agreement) -> Self:
        """Return what a server has told in the handshake."""
        told = agreement.server_info
        texts = {key: value for key in ("name", "version", "title") if isinstance(value := told.get(key), str)}
        is_named = "name" in texts and "version" in texts
        return cls(
            **(texts if is_named else {}),
            instructions=agreement.instructions,
            capabilities=agreement.capabilities,
        )

    def announces(self, feature: Feature) -> bool:
        """Return True if the server announces changes of its tools, resources or prompts."""
        capability = self.capabilities.get(feature)
        return isinstance(capability, dict) and capability.get("listChanged") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatus:
    """Status of a connection."""

    name: str
    """The server's name."""
    state: ConnectionState
    transport: str | None
    """The transport: ``stdio``, ``http``, ``sse`` or ``memory``; None if not detected yet."""
    address: str
    """The redacted command line or URL."""
    era: Era | None = None
    """None before the first handshake."""
    protocol_version: str | None = None
    """MCP version, such as ``2025-11-25``; None before the first handshake."""
    server_info: ServerInfo | None = None
    """The server's description of itself in the last handshake."""
    last_error: ServerError | None = None
    """Last error of the connection; None when it is ready again."""
    connects: int = 0
    """Number of handshakes."""
    pid: int | None = None
    """Process ID of a server that is a running child process."""
    restarts: int = 0
    """Number of attempts to connect after a failed one, or after a lost connection."""
    failures: int = 0
    """Number of consecutive failures; 0 after a useful session."""
    retry_seconds: float | None = None
    """Seconds until a process that failed repeatedly is started again; until then, calls fail at once. None if calls
    start it."""


class ToolListing(NamedTuple):
    """A server's tools, all pages."""

    tools: list[dict[str, Any]]
    """Each as MCP's ``Tool``, unparsed; see `bridge.wire.tools.tool_from_wire`."""
    ttl_seconds: float | None
    """Time to live of the list in seconds; None if not given."""
    malformed: tuple[str, ...] = ()
    """Malformed tools, each a sentence with the reason; not in `tools`."""
    refused: tuple[str, ...] = ()
    """Tools refused by pins, likewise."""


class Wakeup:
    """Wakes the task that waits for a request."""

    __slots__ = ("_event", "_future")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake it, if it waits."""
        if self._event is not None:
            self._event.set()
        elif self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        """Wait for the next change."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # trio
            self._event = anyio.Event()
            await self._event.wait()
            return
        self._future = loop.create_future()
        await self._future


async def wait_with_timeout(event: anyio.Event, seconds: float) -> None:
    """Wait for an event for a maximum number of seconds."""
    with anyio.move_on_after(seconds):
        await event.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPolicy:
    """Reconnect policy. `wait` and `jitter` are its only sources of time and randomness."""

    first_delay_seconds: float = 0.2
    """Seconds after the first failure; doubled by each further failure."""
    max_delay_seconds: float = MAX_BACK_OFF_SECONDS
    """Maximum seconds between attempts."""
    health_check_seconds: float = 30.0
    """Seconds without a response after which the server is checked."""
    health_timeout_seconds: float = 10.0
    """Maximum seconds of a health check."""
    jitter: Callable[[], float] = random.random
    """Number from 0 to 1: share of the second half of each delay, so that clients do not reconnect simultaneously."""
    wait: Callable[[anyio.Event, float], Awaitable[None]] = wait_with_timeout
    """Waits for an event for a maximum number of seconds."""

    def __post_init__(self) -> None:
        check_fields(self, may_be_zero=("first_delay_seconds", "max_delay_seconds"))

    def delay_seconds(self, failures: int) -> float:
        """Delay after this many consecutive failures, in seconds; 0 without failures."""
        if failures <= 0:
            return 0.0
        longest = min(self.first_delay_seconds * 2.0 ** min(failures - 1, 30), self.max_delay_seconds)
        return longest * (0.5 + 0.5 * self.jitter())


class Listeners(Generic[News]):
    """Callbacks, called in the order of registration."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[News, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Callable[News, None]) -> Callable[[], None]:
        """Register a callback, possibly again; returns an idempotent function that ends this registration."""
        registration = object()
        self._listeners[registration] = listener

        def end() -> None:
            self._listeners.pop(registration, None)

        return end

    def notify(self, *news: News.args, **more: News.kwargs) -> None:
        """Call all; exceptions are logged."""
        for listener in tuple(self._listeners.values()):
            try:
                listener(*news, **more)
            except Exception:
                _logger.exception("a listener failed")


class WantedChanges:
    """Changes that a server is asked to announce.

    Attributes:
        lists: Features whose lists are followed.
        uris: Resources that are watched.
        missed: Those among them that may have changed since they were last watched.
        changed: Set when either has changed; replaced for each change.
    """

    def __init__(self) -> None:
        self.lists: set[Feature] = set()
        self.uris: set[str] = set()
        self.missed: set[str] = set()
        self.changed = anyio.Event()

    def follow(self, feature: Feature) -> None:
        """Follow a list."""
        if feature not in self.lists:
            self.lists.add(feature)
            self._notify()

    def watch(self, uri: str) -> None:
        """Watch a resource."""
        if uri not in self.uris:
            self.uris.add(uri)
            self._notify()

    def watch_again(self, uri: str) -> None:
        """Watch a resource that may have changed since it was watched elsewhere."""
        self.missed.add(uri)
        self.watch(uri)

    def unwatch(self, uri: str) -> None:
        """Watch a resource no longer."""
        if uri in self.uris:
            self.uris.discard(uri)
            self.missed.discard(uri)
            self._notify()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class ConnectionEvents:
    """State, last tool list and listeners of one connection, shared with its supervisor."""

    def __init__(self) -> None:
        self.state = ConnectionState.CLOSED
        self.last_error: ServerError | None = None
        self.tools: list[dict[str, Any]] | None = None
        """The tools that were listed last, before pins apply; None before the first list."""
        self.state_listeners = Listeners[[ConnectionState]]()
        self.message_listeners = Listeners[[MessageDirection, str]]()
        self.list_listeners: dict[Feature, Listeners[[]]] = {
            "tools": Listeners(),
            "resources": Listeners(),
            "prompts": Listeners(),
        }
        """Called when a list has, or may have, changed."""
        self.update_listeners = Listeners[[str]]()
        """Called with the URI of a resource that has, or may have, new content."""
        self.completion_listeners = Listeners[[str]]()
        """Called with the identifier of a URL elicitation whose page was completed."""
        self.wanted = WantedChanges()
        """The changes that the listeners want to be notified of."""

    def change_state(self, state: ConnectionState, error: ServerError | None) -> None:
        """Set the state and its error, and notify the listeners of a change."""
        if state is not ConnectionState.CLOSED:
            self.last_error = error
        if state is not self.state:
            self.state = state
            self.state_listeners.notify(state)

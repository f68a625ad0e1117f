"""Link: one connection of the SDK's client, from the greeting to the break.

A connection that heals is a series of links. A link says what its server answered, who calls over it, and when it is
no longer to be used; why it ended is kept for the error that says so.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from weakref import finalize

import anyio
from mcp_types import EmptyResult, JSONRPCError, JSONRPCResponse, Request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from bridge.client.connection.requests import (
    NOBODY,
    CancelledCalls,
    OutgoingRequest,
    as_current_request,
    current_request,
)
from bridge.client.connection.state import ServerInfo
from bridge.client.transports.limits import key_in
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import JSONRPCMessage

    from bridge.client.auth.errors import SignInError
    from bridge.client.connection.call import Call
    from bridge.client.connection.requests import HandshakeTelemetry
    from bridge.client.connection.state import Era, TransportKind
    from bridge.client.transports.process import ChildProcess
    from bridge.telemetry.observer import Observer
    from bridge.types import Json


_Asked = Request[Any, str]
_AS_IT_CAME: TypeAdapter[Any] = TypeAdapter(Any)  # the SDK has looked at it already


class SessionExpiredError(Exception):
    """The server no longer knows the session."""


class UnauthorizedError(Exception):
    """The server asks for credentials.

    Attributes:
        status: The HTTP status with which it asks.
        why: Why it was not given them; None where nobody could have.
    """

    def __init__(self, status: int, why: SignInError | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.why = why


class Session:
    """One connection.

    Attributes:
        kind: How the server is reached.
        child: The server's process, where it is a child.
        calls: The calls that are under way.
        abandoned: The calls that were given up a moment ago without an answer; None where none ever was.
        ended: Set when the link is not to be used any more.
        left: Set when it has ended, and no call over it is waited for: the last is over, or they were given up.
        reason: Why it ended; None where this side wanted it, or where nobody knows.
        suspicion: Set when the server should be asked whether it is there.
        checked: Set when the next such question is settled; a new one for each.
        answers: How often the server has answered.
        status: The HTTP status of the last answer; None without one.
        is_deaf: No answer can come any more.
        greeting: What is asked to greet the server, while that is and somebody observes it.
        listing: Held while its tools are listed.
        takes_tools: The tools of a page are kept from the SDK; see `bridge.client.connection.tool_listing`.
        taken_tools: Those that were, by the key that the page has for them.
        large: The long messages that have been parsed, by the keys of the short ones that stand for them.
    """

    def __init__(self, tools_changed: Callable[[], None]) -> None:
        self.kind: TransportKind | None = None
        self.child: ChildProcess | None = None
        self.calls: set[Call] = set()
        self.abandoned: CancelledCalls | None = None
        self.ended = anyio.Event()
        self.left = anyio.Event()
        self.reason: Exception | None = None
        self.suspicion = anyio.Event()
        self.checked = anyio.Event()
        self.answers = 0
        self.status: int | None = None
        self.is_deaf = False
        self.greeting: HandshakeTelemetry | None = None
        self.listing = anyio.Lock()
        self.takes_tools = False
        self.taken_tools: dict[int, list[Any]] = {}
        self.large: dict[str, JSONRPCMessage] = {}
        self.peer = NOBODY
        self.protocol_version = ""
        self.era: Era = "handshake"
        self.info = ServerInfo()
        self.tools_changed = tools_changed
        self._beside: TaskGroup | None = None
        self._client: Client | None = None

    # --- what happens to it ------------------------------------------------------------------------------------------

    def fail(self, reason: Exception | None) -> None:
        """Use it no more."""
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()
            self.checked.set()

    def leave(self, call: Call) -> None:
        """A call is over."""
        self.calls.discard(call)
        if not self.calls and self.ended.is_set():
            self.left.set()

    def abandon(self, attempt: OutgoingRequest) -> None:
        """Nobody waits for an answer any more, while the server may go on."""
        self.abandoned = self.abandoned or CancelledCalls()
        self.abandoned.add(attempt)

    @property
    def is_lost(self) -> bool:
        """Whether it is over, and not because this side wanted it."""
        return self.ended.is_set() and self.reason is not None

    def answered(self, status: int) -> None:
        """The server answered a message with this status."""
        self.status = status

    def undelivered(self, error: Exception) -> None:
        """A message did not get through. Over a child's pipes, nothing else would notice."""
        if self._client is None:
            self.reason = error
        elif self.kind == "stdio":
            self.fail(error)
        else:
            self.suspect()

    def stream_lost(self, error: Exception) -> None:
        """The one stream that all answers come by has ended."""
        if self._client is None:
            self.reason = error
        else:
            self.fail(error)

    def parsed(self, message: JSONRPCMessage, attempt: OutgoingRequest | None) -> str:
        """Keep a long message that has been parsed until it is fetched, or its attempt is gone; returns its key."""
        key = token_hex()
        self.large[key] = message
        if attempt is not None:
            finalize(attempt, self.large.pop, key, None).atexit = False
        return key

    def whole(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """The long message that a short one stands for; any other message itself."""
        key = key_in(message)
        if not isinstance(key, str) or (large := self.large.pop(key, None)) is None:
            return message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            assert isinstance(large, JSONRPCResponse | JSONRPCError)
            large.id = message.id  # the SDK's transport sets that of the request
        return large

    def suspect(self) -> None:
        """Have the server asked whether it is there."""
        self.suspicion.set()

    def expired(self) -> None:
        """The server no longer knows the session."""
        self.fail(SessionExpiredError("the server no longer knows the session"))

    def unauthorized(self, status: int, why: SignInError | None = None) -> None:
        """The server asks for credentials."""
        if self._client is None:
            self.reason = UnauthorizedError(status, why)
        else:
            self.fail(UnauthorizedError(status, why))

    def child_ended(self) -> None:
        """The child can no longer be talked to."""
        if self._client is not None:
            self.fail(None)

    @contextmanager
    def beside(self, tasks: TaskGroup) -> Iterator[None]:
        """Where what nobody waits for is done, in this block."""
        self._beside = tasks
        try:
            yield
        finally:
            self._beside = None

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run something beside, as long as the link lasts."""
        if self._beside is not None:
            self._beside.start_soon(function, *arguments)

    # --- what it says ------------------------------------------------------------------------------------------------

    def greeted(self, client: Client) -> None:
        """The server has been greeted."""
        self._client = client
        self.protocol_version = client.protocol_version
        self.era = "modern" if client.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"
        said = client.server_info
        self.info = ServerInfo(
            name=said.name if said else None,
            version=said.version if said else None,
            title=said.title if said else None,
            instructions=client.instructions,
            capabilities=client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
        )

    @property
    def client(self) -> Client:
        """The SDK's client."""
        assert self._client is not None
        return self._client

    @property
    def sees_attempts(self) -> bool:
        """Whether the transport tells attempts what becomes of them."""
        return self.kind != "memory"

    def current_call(self) -> Call | None:
        """The call on whose behalf the server speaks just now, or another of the same client's; None if unknown."""
        calls = self.current_calls()
        if not calls or _named_call() is not None:
            return calls[0] if calls else None
        if self.abandoned is not None and not self.abandoned.are_all_of(calls[0].context):
            return None
        peer = calls[0].context.peer
        # Whichever of them it is, the same person is asked.
        is_one = len(calls) == 1 or (peer is not None and all(call.context.peer is peer for call in calls))
        return calls[0] if is_one else None

    def current_calls(self) -> tuple[Call, ...]:
        """The calls on behalf of one of which the server speaks just now."""
        named = _named_call()
        return tuple(self.calls) if named is None else (named,)

    # --- what is asked over it ---------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        attempt: OutgoingRequest,
        on_progress: ProgressFnT | None = None,
    ) -> Coroutine[Any, Any, Json]:
        """Ask the server; its result as it came, once it is what the protocol has for it.

        Raises:
            MCPError: It answered with an error, or cannot answer any more.
            ValidationError: It answered what the protocol does not know.
        """
        if (observer := switch.observer()) is None:
            return self._request(method, params, attempt, on_progress)
        return self._observed(observer, method, params, attempt, on_progress)

    async def _observed(
        self,
        observer: Observer,
        method: str,
        params: Mapping[str, Any],
        attempt: OutgoingRequest,
        on_progress: ProgressFnT | None,
    ) -> Json:
        with observer.asking(method, params.get("name") if method == "tools/call" else None, self.peer) as asking:
            if asking.meta:
                params = {**params, "_meta": {**params.get("_meta", {}), **asking.meta}}
            result = await self._request(method, params, attempt, on_progress)
            asking.answered(result)
            return result

    async def _request(
        self, method: str, params: Mapping[str, Any], attempt: OutgoingRequest, on_progress: ProgressFnT | None
    ) -> Json:
        attempt.sent = not self.sees_attempts
        token = current_request.set(attempt)
        try:
            request = _Asked(method=method, params=params)
            result: Json = await self.client.session.send_request(request, _AS_IT_CAME, progress_callback=on_progress)
        finally:
            current_request.reset(token)
        self.answers += 1
        return result

    async def ping(self, attempt: OutgoingRequest) -> None:
        """Ask whether the server is there.

        Raises:
            MCPError: As for `request`.
        """
        method = "server/discover" if self.era == "modern" else "ping"
        observer = switch.observer()
        # Its trace needs nothing more: the SDK writes the current one into what it sends.
        with (
            nullcontext() if observer is None else observer.asking(method, None, self.peer),
            as_current_request(attempt),
        ):
            if self.era == "modern":
                await self.client.session.send_discover(self.protocol_version)
            else:
                await self.client.session.send_request(_Asked(method="ping", params=None), EmptyResult)
        self.answers += 1


def _named_call() -> Call | None:
    """The call that the transport names as the one on whose behalf the server speaks."""
    attempt = current_request.get()
    return None if attempt is None else attempt.call

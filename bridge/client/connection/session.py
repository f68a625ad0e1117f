"""Session: one SDK client, from handshake to loss.

A connection uses one session after another. A session holds its calls and the reason for its end.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import finalize

import anyio
from mcp_types import EmptyResult, JSONRPCError, JSONRPCResponse, Request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from bridge.client.connection.begun_calls import BegunCalls
from bridge.client.connection.cancelled_calls import CancelledCalls
from bridge.client.connection.state import ServerInfo
from bridge.client.transports.channel import Channel, OutgoingRequest, as_current_request, current_request
from bridge.client.transports.limits import key_in
from bridge.client.transports.plain_responses import BegunRequest
from bridge.telemetry import switch
from bridge.telemetry.instruments import Peer
from bridge.wire.tasks import TASK_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from anyio.abc import TaskGroup
    from mcp import Client
    from mcp_types import JSONRPCMessage, JSONRPCNotification, RequestId

    from bridge.client.auth.errors import SignInError
    from bridge.client.connection.call import Call
    from bridge.client.connection.state import ConnectionEvents, Era, MessageDirection
    from bridge.client.connection.telemetry import HandshakeTelemetry
    from bridge.client.transports.channel import ProgressListener, RequestBeginner, RequestSender
    from bridge.telemetry.observer import Observer
    from bridge.types import Json


_Asked = Request[Any, str]


class _AskedOfTask(_Asked):
    """Request for a task, whose ID is also in a header."""

    name_param = "taskId"


_AS_IT_CAME: TypeAdapter[Any] = TypeAdapter(Any)  # the SDK has validated it


class SessionExpiredError(Exception):
    """The server no longer knows the session."""


class UnauthorizedError(Exception):
    """The server demands credentials.

    Attributes:
        status: HTTP status of the response.
        why: Reason for the missing credentials; None if sign-in is not configured.
    """

    def __init__(self, status: int, why: SignInError | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.why = why


class _NoChannel(Channel):
    """Channel of a session that was not opened."""

    kind = ""

    def open(self) -> NoReturn:
        """Raise: there is nothing to open."""
        raise AssertionError


class Session:
    """One session with a server; receives the events of its channel (`ChannelEvents`).

    Attributes:
        channel: The channel to the server, open or being opened.
        calls: Running calls.
        begun: Calls that no task waits for.
        cancelled_calls: Recently cancelled calls without a response; None until the first.
        ended: Set when the session must not be used any more.
        left: Set when it has ended and no running call uses it.
        reason: Reason for its end; None if it was closed on purpose or the reason is unknown.
        suspicion: Set to request a health check.
        checked: Set after the next health check; replaced for each.
        answers: Number of responses.
        ready_at: Time of the handshake, in the event loop's time.
        handshake: Telemetry of the handshake, while it runs and is observed.
        listing: Lock held while items are listed.
        taken_member: Member of a page that is kept from the SDK; see `bridge.client.connection.listing`.
        taken_items: Those items, by their key in the page.
        events: Notified of changes that the server announces.
        progress_tokens: The SDK's progress tokens of requests that it reads the responses of, by the tokens sent.
        large: Large messages that were parsed before the SDK, by the key in the short message that replaces them.
        take_notification: Handles a notification that the SDK does not know; returns False to leave it to the SDK.
        on_message: Receives each message as JSON, with its direction; None for none. The SDK then sends all requests.
    """

    def __init__(
        self, events: ConnectionEvents, on_message: Callable[[MessageDirection, str], None] | None = None
    ) -> None:
        self.channel: Channel = _NoChannel()
        self.calls: set[Call] = set()
        self.begun = BegunCalls()
        self.cancelled_calls: CancelledCalls | None = None
        self.ended = anyio.Event()
        self.left = anyio.Event()
        self.reason: Exception | None = None
        self.suspicion = anyio.Event()
        self.checked = anyio.Event()
        self.answers = 0
        self.ready_at = 0.0
        self.handshake: HandshakeTelemetry | None = None
        self.listing = anyio.Lock()
        self.taken_member: str | None = None
        self.taken_items: dict[int, list[Any]] = {}
        self.large: dict[str, JSONRPCMessage] = {}
        self.progress_tokens: dict[Any, RequestId] = {}
        self.peer = Peer("memory", "")  # until the handshake
        self.protocol_version = ""
        self.era: Era = "handshake"
        self.info = ServerInfo()
        self.events = events
        self.on_message = on_message
        self.take_notification: Callable[[JSONRPCNotification], bool] = lambda _: False
        self._background_tasks: TaskGroup | None = None
        self._client: Client | None = None
        self._send_directly: RequestSender | None = None
        self._begin_directly: RequestBeginner | None = None

    def fail(self, reason: Exception | None) -> None:
        """End the session."""
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()
            self.checked.set()

    def leave(self, call: Call | BegunRequest) -> None:
        """Remove a call that has ended, or a begun one that a task continues."""
        if isinstance(call, BegunRequest):
            self.begun.discard(call)
        else:
            self.calls.discard(call)
        if self.ended.is_set() and not self.has_calls:
            self.left.set()

    @property
    def has_calls(self) -> bool:
        """True while calls run."""
        return bool(self.calls or self.begun)

    def begin(self, params: Json, call: BegunRequest) -> bool:
        """Send a call without waiting; return False, before anything is sent, if that is not possible."""
        begin = self._begin_directly
        if begin is None or switch.observer() is not None or not begin("tools/call", params, call):
            return False
        self.begun.add(call)
        return True

    def cancel_request(self, outgoing: OutgoingRequest) -> None:
        """Remember a cancelled request that the server may still run."""
        self.cancelled_calls = self.cancelled_calls or CancelledCalls()
        self.cancelled_calls.add(outgoing)

    @property
    def is_lost(self) -> bool:
        """True if the session ended unintentionally."""
        return self.ended.is_set() and self.reason is not None

    def undelivered(self, error: Exception) -> None:
        """Handle a message that could not be sent, where later ones may be."""
        if self._client is None:
            self.reason = error
        else:
            self.suspect()

    def stream_lost(self, error: Exception) -> None:
        """Handle the loss of the stream that carries all responses."""
        if self._client is None:
            self.reason = error
        else:
            self.fail(error)

    def parsed(self, message: JSONRPCMessage, outgoing: OutgoingRequest | None) -> str:
        """Store a parsed message until it is fetched, or its request is garbage-collected; returns its key."""
        key = token_hex()
        self.large[key] = message
        if outgoing is not None:
            finalize(outgoing, self.large.pop, key, None).atexit = False
        return key

    def whole(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """Return the stored message that a short one refers to; any other message unchanged."""
        key = key_in(message)
        if not isinstance(key, str) or (large := self.large.pop(key, None)) is None:
            return message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            assert isinstance(large, JSONRPCResponse | JSONRPCError)
            large.id = message.id  # set by the SDK's transport
        return large

    def report(self, direction: MessageDirection, message: JSONRPCMessage) -> None:
        """Pass a message to the listener, if there is one."""
        if self.on_message is not None:
            self.on_message(direction, message.model_dump_json(by_alias=True, exclude_none=True))

    def handed_over(self, outgoing: OutgoingRequest, request_id: RequestId) -> None:
        """Map the progress token of a request to that of the SDK, until the request is garbage-collected."""
        self.progress_tokens[outgoing.plain_id] = request_id
        finalize(outgoing, self.progress_tokens.pop, outgoing.plain_id, None).atexit = False

    def map_progress_token(self, message: JSONRPCNotification) -> None:
        """Replace the progress token in a notification by that of the SDK."""
        if message.method == "notifications/progress" and message.params:
            token = message.params.get("progressToken")
            message.params["progressToken"] = self.progress_tokens.get(token, token)

    def suspect(self) -> None:
        """Request a health check."""
        self.suspicion.set()

    def expired(self) -> None:
        """End a session that the server no longer knows."""
        self.fail(SessionExpiredError("the server no longer knows the session"))

    def unauthorized(self, status: int, why: SignInError | None = None) -> None:
        """Handle a demand for credentials."""
        self.stream_lost(UnauthorizedError(status, why))

    def peer_ended(self) -> None:
        """Handle the end of the server's process."""
        if self._client is not None:
            self.fail(None)

    @contextmanager
    def run_background_tasks(self, tasks: TaskGroup) -> Iterator[None]:
        """Use a task group for background tasks during this block."""
        self._background_tasks = tasks
        try:
            yield
        finally:
            self._background_tasks = None

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a background task while the session lasts."""
        if self._background_tasks is not None:
            self._background_tasks.start_soon(function, *arguments)

    def ready(self, client: Client, peer: Peer) -> None:
        """Store the result of the handshake."""
        self._client = client
        self.ready_at = anyio.current_time()
        self._send_directly = self.channel.request_sender(client)
        self._begin_directly = self.channel.request_beginner()
        self.peer = peer
        self.protocol_version = client.protocol_version
        self.era = "modern" if client.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"
        info = client.server_info
        self.info = ServerInfo(
            name=info.name if info else None,
            version=info.version if info else None,
            title=info.title if info else None,
            instructions=client.instructions,
            capabilities=client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
        )

    @property
    def client(self) -> Client:
        """The SDK's client."""
        assert self._client is not None
        return self._client

    def current_call(self) -> Call | None:
        """The call that a server message belongs to, or one of the same client; None if unknown."""
        calls = self.current_calls()
        if not calls or _named_call() is not None:
            return calls[0] if calls else None
        if self.begun:
            return None
        if self.cancelled_calls is not None and not self.cancelled_calls.are_all_of(calls[0].context):
            return None
        peer = calls[0].context.peer
        # all of them have the same user
        is_one = len(calls) == 1 or (peer is not None and all(call.context.peer is peer for call in calls))
        return calls[0] if is_one else None

    def current_calls(self) -> tuple[Call, ...]:
        """The calls that a server message may belong to."""
        named = _named_call()
        return tuple(self.calls) if named is None else (named,)

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        outgoing: OutgoingRequest,
        on_progress: ProgressListener | None = None,
    ) -> Coroutine[Any, Any, Json]:
        """Send a request; the result is validated by the SDK and returned unparsed.

        Raises:
            MCPError: The server responded with an error, or the connection was lost.
            ValidationError: The result is not valid MCP.
        """
        if (observer := switch.observer()) is None:
            return self._request(method, params, outgoing, on_progress)
        return self._observed(observer, method, params, outgoing, on_progress)

    async def _observed(
        self,
        observer: Observer,
        method: str,
        params: Mapping[str, Any],
        outgoing: OutgoingRequest,
        on_progress: ProgressListener | None,
    ) -> Json:
        with observer.asking(method, params.get("name") if method == "tools/call" else None, self.peer) as asking:
            if asking.meta:
                params = {**params, "_meta": {**params.get("_meta", {}), **asking.meta}}
            result = await self._request(method, params, outgoing, on_progress)
            asking.answered(result)
            return result

    async def _request(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressListener | None
    ) -> Json:
        outgoing.sent = not self.channel.records_requests
        send = self._send_directly
        sending = None if send is None else send(method, params, outgoing, on_progress)
        result = None if sending is None else await sending
        if result is None:
            result = await self._request_over_sdk(method, params, outgoing, on_progress)
        self.answers += 1
        return result

    async def _request_over_sdk(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressListener | None
    ) -> Json:
        request = (_AskedOfTask if method in TASK_METHODS else _Asked)(method=method, params=params)
        try:
            with as_current_request(outgoing):
                result: Json = await self.client.session.send_request(
                    request, _AS_IT_CAME, progress_callback=on_progress
                )
        except BaseException:
            if outgoing.received is not None:  # the SDK has not read it, and will not
                await outgoing.received.aclose()
            raise
        return result

    async def ping(self, outgoing: OutgoingRequest) -> None:
        """Check that the server responds.

        Raises:
            MCPError: As for `request`.
        """
        method = "server/discover" if self.era == "modern" else "ping"
        observer = switch.observer()
        # The SDK propagates the current trace context.
        with (
            nullcontext() if observer is None else observer.asking(method, None, self.peer),
            as_current_request(outgoing),
        ):
            if self.era == "modern":
                await self.client.session.send_discover(self.protocol_version)
            else:
                await self.client.session.send_request(_Asked(method="ping", params=None), EmptyResult)
        self.answers += 1


def _named_call() -> Call | None:
    """The call that the transport attributes the current message to."""
    outgoing = current_request.get()
    return None if outgoing is None else outgoing.call

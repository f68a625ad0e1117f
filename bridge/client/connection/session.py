"""Session: what passes between this client and a server, from handshake to loss.

    request() ──> Peer ──> Link ──> server
                   ↑         │
                   ╰─────────╯ receive(): responses, progress, notifications, requests of the server

A connection uses one session after another. A session holds its calls and the reason for its end. What has to be
awaited for a request, such as a callback for its progress, is awaited by the task that waits for its outcome.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from opentelemetry.context import get_current
from opentelemetry.propagate import inject

from bridge.client.auth.errors import UnauthorizedError
from bridge.client.connection.backlog import Backlog
from bridge.client.connection.cancelled_calls import CancelledCalls
from bridge.client.connection.direct_calls import DirectCalls
from bridge.client.connection.status import ServerInfo, Wakeup
from bridge.client.connection.usage import SessionUsage
from bridge.client.transports.link import Link, NoLink, SessionExpiredError
from bridge.client.transports.received_data import json_in
from bridge.protocol.param_headers import param_headers
from bridge.protocol.peer import Peer, PeerLostError, PendingRequest, cancellation
from bridge.telemetry import current
from bridge.telemetry.instruments import Peer as PeerLabels
from bridge.wire.tasks import TASK_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from anyio.abc import TaskGroup

    from bridge.client.auth.errors import SignInError
    from bridge.client.connection.direct_calls import DirectCall
    from bridge.client.connection.running_call import Call
    from bridge.client.connection.status import ConnectionEvents, Era, MessageDirection, MessageHandler
    from bridge.protocol.negotiation import Agreement
    from bridge.protocol.param_headers import HeaderNames
    from bridge.telemetry.observer import Observer
    from bridge.types import Json

_NAME_KEYS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(TASK_METHODS, "taskId"),
}
"""Parameters that name the target of a request."""
_MAX_POSTS = 1000
"""Maximum messages without a response that are sent at once; further ones are dropped."""


class Session:
    """One session with a server; receives the messages and events of its link (`LinkEvents`).

    Args:
        events: Notified of changes that the server announces.
        on_message: Receives each message as JSON, with its direction; None for none.

    Attributes:
        link: The link to the server, open or being opened.
        peer: The requests under way.
        calls: Running calls.
        direct_calls: Calls for whose outcome no task waits.
        cancelled_calls: Recently cancelled calls without a response; None until the first.
        ended: Set when the session must not be used any more.
        left: Set when it has ended and no running call uses it.
        reason: Reason for its end; None if it was closed on purpose or the reason is unknown.
        suspicion: Set to request a health check.
        checked: Set after the next health check; replaced for each.
        answers: Number of responses.
        usage: Responses and tasks by which an unused server is found.
        ready_at: Time of the handshake, in the event loop's time.
        backlog: Messages of no call that are being delivered.
        messages: Handles what the server sends of itself; set before the link is opened.
        headers: Headers in which arguments are repeated, by tool (MCP 2026-07-28, ``x-mcp-header``).
    """

    def __init__(
        self, events: ConnectionEvents, on_message: Callable[[MessageDirection, str], None] | None = None
    ) -> None:
        self.link: Link = NoLink()
        self.calls: set[Call] = set()
        self.direct_calls = DirectCalls()
        self.cancelled_calls: CancelledCalls | None = None
        self.ended = anyio.Event()
        self.left = anyio.Event()
        self.reason: Exception | None = None
        self.suspicion = anyio.Event()
        self.checked = anyio.Event()
        self.answers = 0
        self.usage = SessionUsage()
        self.ready_at = 0.0
        self.headers: dict[str, HeaderNames] = {}
        self.labels = PeerLabels("memory", "")  # until the handshake
        self.era: Era = "handshake"
        self.info = ServerInfo()
        self.events = events
        self.messages: MessageHandler
        self._on_message = on_message
        self.backlog = Backlog()
        self._background_tasks: TaskGroup | None = None
        self._posts = 0
        self._is_ready = False
        self.peer = Peer(
            json_in,
            lambda message, of: self.messages.on_request(message, of),  # noqa: PLW0108 - set later
            lambda message, of: self.messages.on_notification(message, of),  # noqa: PLW0108 - set later
            lambda message: self.messages.on_malformed(message),  # noqa: PLW0108 - set later
            self._on_late,
        )

    def leave(self, call: Call) -> None:
        """Remove a call that has ended."""
        self.calls.discard(call)
        self._leave_if_done()

    def leave_direct(self, call: DirectCall, has_ended: bool) -> None:
        """Remove a direct call that has ended, or for whose outcome a task waits."""
        self.direct_calls.discard(call)
        self.answers += has_ended
        if self.usage.notes_tasks:
            self.usage.note(call.request.result)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self.ended.is_set() and not self.has_calls:
            self.left.set()

    @property
    def has_calls(self) -> bool:
        """True while calls run."""
        return bool(self.calls or self.direct_calls)

    def cancel_request(self, request: PendingRequest) -> None:
        """Remember a cancelled request that the server may still run."""
        self.cancelled_calls = self.cancelled_calls or CancelledCalls()
        self.cancelled_calls.add(request)

    def current_call(self, of: PendingRequest | None) -> Call | None:
        """The call that a server message belongs to, or one of the same client; None if unknown."""
        calls = self.current_calls(of)
        if not calls or (of is not None and of.owner is not None):
            return calls[0] if calls else None
        cancelled = self.cancelled_calls
        if self.direct_calls or (cancelled is not None and not cancelled.are_all_of(calls[0].context)):
            return None
        peer = calls[0].context.peer
        is_one = len(calls) == 1 or (peer is not None and all(call.context.peer is peer for call in calls))
        return calls[0] if is_one else None  # all of them have the same user

    def current_calls(self, of: PendingRequest | None) -> tuple[Call, ...]:
        """The calls that a server message may belong to."""
        return tuple(self.calls) if of is None or of.owner is None else (of.owner,)

    def fail(self, reason: Exception | None) -> None:
        """End the session."""
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()
            self.checked.set()

    @property
    def is_lost(self) -> bool:
        """True if the session ended unintentionally."""
        return self.ended.is_set() and self.reason is not None

    @property
    def version(self) -> str:
        """Protocol version of requests; empty before the handshake."""
        return self.peer.version

    def receive(self, text: bytes, of: PendingRequest | None = None) -> None:
        """Handle a message; see `bridge.protocol.peer.Peer.receive`."""
        if self._on_message is not None:
            self._on_message("received", text.decode(errors="replace"))
        self.peer.receive(text, of)

    def responded(self, text: bytes) -> PendingRequest | None:
        """Return the request that a text responds to; see `bridge.protocol.peer.Peer.responded`."""
        return self.peer.responded(text)

    def pending(self) -> Mapping[int, PendingRequest]:
        """Requests without an outcome, by ID."""
        return self.peer.pending

    def fail_pending(self, error: PeerLostError) -> None:
        """Fail all requests, because no response can be received any more."""
        self.peer.fail(error)

    async def delivered(self) -> None:
        """Wait while too many messages are being delivered, unless that delays other calls for long."""
        for call in [each for each in self.calls if each.is_full]:
            await self._has_room(call.backlog, call)
        if self.backlog.is_full:
            await self._has_room(self.backlog, None)

    async def _has_room(self, backlog: Backlog, call: Call | None) -> None:
        def delays_others() -> bool:
            return call is None or call.is_over or len(self.calls) + len(self.direct_calls) > 1

        backlog.drops = not await backlog.has_room(delays_others)

    def undelivered(self, error: Exception) -> None:
        """Handle a message that could not be sent, where later ones may be."""
        if self._is_ready:
            self.suspect()
        else:
            self.reason = error

    def stream_lost(self, error: Exception) -> None:
        """Handle the loss of the stream that carries all responses."""
        if self._is_ready:
            self.fail(error)
        else:
            self.reason = error

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
        if self._is_ready:
            self.fail(None)

    @contextmanager
    def run_background_tasks(self, tasks: TaskGroup) -> Iterator[None]:
        """Use a task group for background tasks during this block; afterwards no request has a response."""
        self._background_tasks = tasks
        try:
            yield
        finally:
            self._background_tasks = None
            self.peer.fail(PeerLostError("the connection was closed"))

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run a background task while the session lasts."""
        if self._background_tasks is not None:
            self._background_tasks.start_soon(function, *arguments)

    def ready(self, agreement: Agreement, labels: PeerLabels) -> None:
        """Store the outcome of the handshake."""
        self._is_ready, self.answers = True, 0
        self.ready_at = anyio.current_time()
        self.labels = labels
        self.era = "modern" if self.peer.is_modern else "handshake"
        self.info = ServerInfo.of(agreement)

    def _on_late(self, request_id: Any) -> None:
        if self.cancelled_calls is not None:
            self.cancelled_calls.answered(request_id)

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        request: PendingRequest,
        *,
        arguments: bytes | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Json]:
        """Send a request, and wait for its result.

        Args:
            method: MCP method.
            params: Parameters.
            request: The new request.
            arguments: JSON of the arguments among the parameters; None if they are not written yet.
            capabilities: Capabilities that it declares; None for those of this client.

        Raises:
            ProtocolError: The server responded with an error.
            PeerLostError: No response can be received.
            InvalidResultError: The result is not valid MCP.
        """
        if (observer := current.observer()) is None:
            self.write(method, params, request, arguments, capabilities)
            return self.finish(request)
        return self._observed(observer, method, params, request, arguments, capabilities)

    async def _observed(
        self,
        observer: Observer,
        method: str,
        params: Mapping[str, Any],
        request: PendingRequest,
        arguments: bytes | None,
        capabilities: Mapping[str, Any] | None,
    ) -> Json:
        with observer.asking(method, params.get("name") if method == "tools/call" else None, self.labels) as asking:
            if asking.meta:
                params = {**params, "_meta": {**params.get("_meta", {}), **asking.meta}}
            self.write(method, params, request, arguments, capabilities)
            result = await self.finish(request)
            asking.answered(result)
            return result

    def write(
        self,
        method: str,
        params: Mapping[str, Any],
        request: PendingRequest,
        arguments: bytes | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a request, which `finish` sends."""
        meta: Json | None = None
        if get_current():
            inject(meta := {})
        if (key := _NAME_KEYS.get(method)) is not None:
            request.name = params.get(key)
            if self.headers and method == "tools/call" and (names := self.headers.get(params["name"])) is not None:
                request.headers = param_headers(names, params.get("arguments") or {})
        self.peer.write(request, method, params, arguments=arguments, capabilities=capabilities, meta=meta)
        self._report(request.text)

    def send_directly(self, call: DirectCall) -> bool:
        """Send a written request that no task waits for; return False, before anything is sent, if it would wait."""
        if not self.link.send_now(call.request):
            self.peer.discard(call.request)
            return False
        self.direct_calls.add(call)
        return True

    async def finish(self, request: PendingRequest) -> Json:
        """Send a request, unless it was sent, and wait for its outcome; raises as `request`.

        If it is cancelled, the server is notified.
        """
        wakeup = Wakeup()
        request.on_change = wakeup.set
        try:
            if not (request.is_sent or request.is_over or self.link.send_now(request)):
                await self.link.send(request)
            while True:
                while request.work:
                    await request.work.popleft()()
                if request.is_over:
                    break
                await wakeup.wait()
        except BaseException:
            if not request.is_over:
                self._abandon(request)
            raise
        finally:
            request.on_change = None
            self.peer.discard(request)
        if request.error is not None:
            raise request.error
        self.answers += 1
        assert request.result is not None
        if self.usage.notes_tasks:
            self.usage.note(request.result)
        return request.result

    def _abandon(self, request: PendingRequest) -> None:
        self.link.abandon(request)
        is_told = self.peer.is_modern and self.link.cancels_by_closing
        if request.is_sent and self._is_ready and not is_told:
            self.post_soon(cancellation(request))

    def post_soon(self, text: bytes) -> None:
        """Send a message that has no response, without waiting for it."""
        if self._posts < _MAX_POSTS:
            self._posts += 1
            self.start_soon(self._post, text)

    async def _post(self, text: bytes) -> None:
        try:
            await self.post(text)
        finally:
            self._posts -= 1

    async def post(self, text: bytes) -> None:
        """Send a message that has no response."""
        self._report(text)
        await self.link.post(text)

    async def ping(self, request: PendingRequest) -> None:
        """Check that the server responds; raises as `request`."""
        await self.request("server/discover" if self.peer.is_modern else "ping", {}, request)

    def _report(self, text: bytes) -> None:
        if self._on_message is not None:
            self._on_message("sent", text.decode())

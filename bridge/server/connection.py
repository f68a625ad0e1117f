"""One client over one ordered stream of messages: stdio, SSE, or in memory; in either era.

    message ─> receive ─> Dispatch ─┬─> bytes ─────────────────────────────────────────────> write
                                    ╰─> ServedExchange ─> first step ─┬─> it has ended ────> write
                                                                      ╰─> a task ──────────> write

The first request selects the era: one of 2026-07-28 has the protocol version in its ``_meta``. Messages are written
whole, so a result in parts is held until it is complete. It runs on asyncio and trio; the first step of a call runs in
the turn in which its message is received, on asyncio, if no task receives it.

Clauses: MCP 2025-11-25 and 2026-07-28, "Cancellation", "Lifecycle", and "Transports", stdio.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint

from bridge.portal import runs_on_asyncio
from bridge.protocol.envelope import unsupported_version
from bridge.protocol.messages import ProtocolError, answer, error_message
from bridge.protocol.session import Session
from bridge.protocol.versions import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, PROTOCOL_VERSION_KEY
from bridge.server.dispatch import internal_error_message
from bridge.server.eager_tasks import EagerTasks
from bridge.server.exchange import ServedExchange
from bridge.server.methods.subscriptions import Listen
from bridge.server.notifications import SessionNotifications

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from contextlib import AbstractContextManager

    from anyio.abc import TaskGroup

    from bridge.protocol.messages import MessageId
    from bridge.server.core import ServerCore
    from bridge.server.dispatch import Dispatch
    from bridge.server.exchange import Origin
    from bridge.server.results.contents_stream import ResponseContents
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

_NOTHING = nullcontext()
_CLOSED: Json = {"code": CONNECTION_CLOSED, "message": "Connection closed"}


class StreamConnection:
    """One client over one stream.

    Args:
        core: The server.
        dispatch: Its dispatch.
        origin: Where the requests come from, unless `receive` is told otherwise.
        write: Writes a message, without waiting; drops it once the stream is closed.
        drained: Waits while the stream is full, after a notification or question was written; None if it never is.
        write_parts: Writes a message that comes in parts; None to join them first.
        write_related: Writes a notification or question of a request, given its id, in place of ``write``; None if the
            stream does not relate messages.
        is_modern_served: False if the transport has the handshake era alone.
        session: The session of the handshake era; None for a new one.
    """

    def __init__(
        self,
        core: ServerCore,
        dispatch: Dispatch,
        origin: Origin,
        write: Callable[[bytes], None],
        drained: Callable[[], Awaitable[None]] | None = None,
        *,
        write_parts: Callable[[Sequence[bytes]], None] | None = None,
        write_related: Callable[[bytes, MessageId], None] | None = None,
        is_modern_served: bool = True,
        session: Session | None = None,
    ) -> None:
        self.session = session or Session()
        """The session of the handshake era; in the modern era, its requests that run alone are used."""
        self._core = core
        self._dispatch = dispatch
        self._origin = origin
        self._write = write
        self._write_parts = write_parts or (lambda parts: write(b"".join(parts)))
        self._drained = drained
        self._is_modern_served = is_modern_served
        self._write_related = write_related
        self._is_modern: bool | None = None if is_modern_served else False
        self._tasks: TaskGroup | None = None
        self._eager: EagerTasks | None = None
        """Runs calls on asyncio; its tasks take a fifth of the time of those of a group, and `ended` waits for them."""
        self._initialized: anyio.Event
        self._notifications: SessionNotifications | None = None
        self._calls: set[_Call] = set()
        self._is_over = False
        self._changed: anyio.Event | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which messages are received; at its end, requests that still run are cancelled."""
        self._eager = EagerTasks(asyncio.get_running_loop()) if runs_on_asyncio() else None
        try:
            async with anyio.create_task_group() as self._tasks:
                self._initialized = anyio.Event()
                self._tasks.start_soon(self._notify)
                try:
                    yield
                finally:
                    self.cancel()
                    self._tasks.cancel_scope.cancel()
                    with anyio.CancelScope(shield=True):
                        await self.ended()
        finally:
            self._tasks = None
            if self._eager is not None:
                self._eager.close()

    def receive(
        self, message: Json, origin: Origin | None = None, held: AbstractContextManager[object] = _NOTHING
    ) -> None:
        """Handle a message, without waiting; none is handled after `cancel`.

        Args:
            message: A message, as `bridge.protocol.messages.read_message` returns it.
            origin: Where it comes from; None for the origin of the connection.
            held: Context in which a request is answered.
        """
        if self._is_over:
            return
        try:
            if "method" not in message:
                self.session.answered(message)
            elif "id" in message:
                self._receive_request(message, origin or self._origin, held)
            else:
                self._receive_notification(message, origin or self._origin)
        except Exception as error:
            if "method" in message and "id" in message:
                self._write(internal_error_message(message, error))
            else:
                _logger.exception("a notification or response could not be handled")

    # --- the end of the connection -----------------------------------------------------------------------------------
    @property
    def unanswered(self) -> int:
        """Number of requests that run, and will be answered; a subscription lasts as long as its client."""
        return sum(1 for call in self._calls if not (call.is_withdrawn or call.is_subscription))

    async def settled(self) -> None:
        """Wait until no request is `unanswered`."""
        while self.unanswered:
            await self._change()

    def cancel(self) -> None:
        """Cancel the requests that run, because the connection ends; they are answered by errors."""
        self._is_over = True
        for call in tuple(self._calls):
            call.end()
        self.session.close()
        if self._notifications is not None:
            self._notifications.close()

    async def ended(self) -> None:
        """Wait until all requests have ended, after `cancel`."""
        while self._calls:
            await self._change()

    def answer_unfinished(self) -> None:
        """Answer the requests that still run after `cancel`."""
        for call in self._calls:
            if call.is_ending and not call.is_withdrawn:
                call.is_withdrawn = True
                self._write(error_message(call.id, _CLOSED))

    async def _change(self) -> None:
        self._changed = self._changed or anyio.Event()
        await self._changed.wait()

    def _note_change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # --- messages -----------------------------------------------------------------------------------------------------

    def _receive_request(self, message: Json, origin: Origin, held: AbstractContextManager[object]) -> None:
        try:
            dispatched = self._dispatched(message, origin)
        except ProtocolError as error:
            dispatched = answer(message["id"], error)
        if isinstance(dispatched, bytes):
            self._write(dispatched)
            return
        call, eager, in_context = _Call(dispatched, self._send), self._eager, dispatched.origin.in_context
        dispatched.outlet = call
        if eager is not None and eager.is_ready():
            step = eager.step if in_context is None else lambda work: eager.step(in_context(work))
            if (text := dispatched.responder.start(dispatched, step)) is not None:
                self._write(text)
                dispatched.end()
                return
        held.__enter__()
        self._calls.add(call)
        self.session.running[str(call.id)] = call
        work = self._run(call, dispatched, held)
        self._start(call, work if in_context is None else in_context(work))

    def _dispatched(self, message: Json, origin: Origin) -> bytes | ServedExchange:
        """Dispatch a request in the era of the connection.

        Raises:
            ProtocolError: It is of the other era, or of an id in use.
        """
        is_handshake = message["method"] == "initialize"
        has_version = self._is_modern_served and not is_handshake and _names_version(message)
        if self._is_modern is None:
            self._is_modern = has_version
        if not self._is_modern:
            if has_version:
                text = "this connection is of the handshake era: requests of 2026-07-28 are not accepted on it"
                raise ProtocolError(INVALID_REQUEST, text)
            return self._dispatch.handshake(message, self.session, origin, self.session.version)
        if is_handshake:
            requested = (message.get("params") or {}).get("protocolVersion")
            raise unsupported_version(requested if isinstance(requested, str) else "")
        if (problem := self.session.id_problem(message["id"])) is not None:
            raise ProtocolError(INVALID_REQUEST, problem)
        dispatched = self._dispatch.modern(message, origin)
        if isinstance(dispatched, ServedExchange):
            dispatched.connection = self.session
        return dispatched

    def _receive_notification(self, message: Json, origin: Origin) -> None:
        self._dispatch.notified(message, origin, self.session.version)
        match message["method"]:
            case "notifications/cancelled":
                self.session.cancel((message.get("params") or {}).get("requestId"))
                self._note_change()
            case "notifications/initialized" if self.session.version and not self.session.is_initialized:
                self.session.is_initialized = True
                self._notifications = SessionNotifications(self._core, self.session, origin.caller)
                self._initialized.set()

    async def _notify(self) -> None:
        """Notify the client of changes, once it is initialized."""
        await self._initialized.wait()
        assert self._notifications is not None, "it is initialized"
        await self._notifications.deliver(self._send)

    async def _send(self, message: bytes, request: MessageId | None = None) -> None:
        """Write a notification or question, of a request if one is given; return when the client has read enough."""
        await checkpoint()  # code that only reports progress must not block others, and can be cancelled
        if request is None or self._write_related is None:
            self._write(message)
        else:
            self._write_related(message, request)
        if self._drained is not None:
            await self._drained()

    def _start(self, call: _Call, work: Coroutine[Any, Any, None]) -> None:
        """Run a request in a task."""
        if self._eager is None:
            assert self._tasks is not None, "the connection is running"
            scope = anyio.CancelScope()
            call.stop = scope.cancel
            self._tasks.start_soon(_run_in, scope, work)
        elif (task := self._eager.run(work)) is not None:
            call.stop = task.stop

    async def _run(self, call: _Call, exchange: ServedExchange, held: AbstractContextManager[object]) -> None:
        """Run an exchange, and write its answer."""
        parts: Sequence[bytes] = ()
        try:
            text, code = await answered(exchange)
            parts = (text,) if code else (*call.parts, text)
        finally:
            if not parts and call.is_ending:  # it is cancelled
                parts = (error_message(call.id, _CLOSED),)
            if parts and not call.is_withdrawn:
                self._write(*parts) if len(parts) == 1 else self._write_parts(parts)
            exchange.end()
            held.__exit__(None, None, None)
            self._calls.discard(call)
            self.session.running.pop(str(call.id), None)
            self._note_change()


class _Call:
    """A request that runs: its outlet, and what its client can cancel."""

    def __init__(self, exchange: ServedExchange, send: Callable[[bytes, MessageId], Awaitable[None]]) -> None:
        self.id: MessageId = exchange.id
        self.is_subscription = exchange.method == Listen.name
        self.stop: Callable[[], object] = _nothing
        """Cancels its task, once it has one."""
        self.is_withdrawn = False
        """True if it gets no answer, or has its last: its client has cancelled it, or the connection has ended."""
        self.is_ending = False
        """True if it was cancelled because the connection ends."""
        self._send = send
        self.parts: list[bytes] = []
        """The beginning of a result that comes in parts."""

    def cancel(self) -> None:
        """Cancel it, because its client no longer waits."""
        if not self.is_ending:
            self.is_withdrawn = True
            self.stop()

    def end(self) -> None:
        """Cancel it, because the connection ends."""
        if not self.is_withdrawn:
            self.is_ending = True
            self.stop()

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:  # noqa: ARG002 - one stream for both
        """Send a message, and wait while the client does not read."""
        await self._send(message, self.id)

    async def close_stream(self) -> None:
        """Do nothing: the stream is that of all requests."""

    def stream_contents(self, contents: ResponseContents) -> None:
        """Let the result come in parts, which are held until it is complete."""
        contents.body = self

    def begin(self) -> bool:
        """Begin a result in parts."""
        return True

    async def write(self, part: bytes) -> None:
        """Hold a part of the result."""
        self.parts.append(part)


async def _run_in(scope: anyio.CancelScope, work: Coroutine[Any, Any, None]) -> None:
    with scope:
        await work


def _nothing() -> None:
    """Cancel nothing."""


async def answered(exchange: ServedExchange) -> tuple[bytes, int]:
    """Run an exchange among the running calls of its server; return the answer, and its error code or 0.

    Code that cancels its own task is answered by an error.
    """
    # A subscription does not end by itself.
    running = nullcontext() if exchange.method == Listen.name else exchange.running.entered(exchange.origin.account)
    try:
        with running:
            return await exchange.responder.run(exchange)
    except ProtocolError as error:
        return exchange.refusal(error), error.code
    except anyio.get_cancelled_exc_class() as error:
        if anyio.current_effective_deadline() == float("-inf"):  # from outside
            raise
        return internal_error_message({"id": exchange.id, "method": exchange.method}, error), INTERNAL_ERROR


def _names_version(message: Json) -> bool:
    """Return True if a request has a protocol version in its ``_meta``, as every one of the modern era."""
    meta = (message.get("params") or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_KEY in meta

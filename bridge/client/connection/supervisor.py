"""Connection supervisor: the task that opens, closes and replaces a connection's sessions.

    connect ──> handshake ──> serve until the session ends ──> leave ──╮
       ├──────────── failed ────────────> back off, or requested ──────┼──> connect …
       ╰──────────── not needed now ────> idle, until requested ───────╯

A session must be opened and closed by one task, so each has its own. An HTTP session with running calls is closed after
the last of them; the next session is opened meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from bridge.client.connection.failures import ErrorTranslator, is_refusal
from bridge.client.connection.handshake import open_session
from bridge.client.connection.health import HealthMonitor, until_unused
from bridge.client.connection.listing import list_again
from bridge.client.connection.processes import CIRCUIT_FAILURES, Circuit, no_start
from bridge.client.connection.running_call import Deadlines
from bridge.client.connection.session import Session
from bridge.client.connection.status import ConnectionState, SessionEnd
from bridge.client.connection.subscriptions import ChangeReceiver
from bridge.client.connection.task_notifications import TaskNotifications
from bridge.telemetry import current

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2
    from anyio.abc import TaskGroup, TaskStatus

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.definitions import KeptDefinitions
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.processes import ProcessStarts
    from bridge.client.connection.status import ConnectionEvents, Era, ReconnectPolicy
    from bridge.errors import ServerUnavailableError

_logger = logging.getLogger("bridge.client")

CLOSE_SECONDS = 3.0
"""Maximum seconds of a session's shutdown; a child's shutdown has its own limit."""
_LOST_SECONDS = 0.5
"""The same after a lost connection, in seconds."""
MAX_REQUIRED_DELAY_SECONDS = 10.0
"""Maximum seconds between attempts to reconnect to a required server."""
_SETTLE_SECONDS = 0.5
"""Seconds that a child which closed its output has to end, so that its exit code is known."""


class Supervisor:
    """Opens and closes one connection. `run` is its task; its other methods may be called from any task."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        handlers: ClientHandlers,
        reconnect: ReconnectPolicy,
        auth: httpx2.Auth | None,
        events: ConnectionEvents,
        starts: ProcessStarts,
        definitions: KeptDefinitions | None,
    ) -> None:
        self.session: Session | None = None
        """The session to use; None if there is none."""
        self.last: Session | None = None
        """The last session with a complete handshake, usable or not."""
        self.done = anyio.Event()
        self.connects = 0
        self.circuit = Circuit()
        self.is_idle = False
        """True while the process does not run because nothing needs it."""
        self.error: ServerUnavailableError | None = None
        self.failures = ErrorTranslator(config)
        self.deadlines = Deadlines()
        self.config = config
        self.handlers = handlers
        self._reconnect = reconnect
        self._auth = auth
        self.events = events
        """State, last list and listeners of the connection."""
        self._starts = starts
        self.definitions = definitions
        """Lists of a lazily started server while it does not run; None for others."""
        self._is_waking = self._is_unused = False
        self._last_era: Era | None = None
        self.receiver: ChangeReceiver | None = None
        """Receives the changes of the session; None before the first."""
        self.task_notifications: TaskNotifications | None = None
        """Notifications of tasks over the session; None before the first."""
        self._stopping = anyio.Event()
        self._wanted = anyio.Event()
        self._changed = anyio.Event()
        self._attempts = 0
        self._waiters = 0
        self._was_useful = False
        self._connecting: anyio.CancelScope | None = None
        self._finishing: set[Session] = set()

    @property
    def is_stopping(self) -> bool:
        """True after `stop`."""
        return self._stopping.is_set()

    @property
    def is_busy(self) -> bool:
        """True while calls run, or wait for a session."""
        return bool(self._waiters or self._finishing or (self.session is not None and self.session.has_calls))

    @property
    def ready_session(self) -> Session | None:
        """The session, if it can be used immediately."""
        return self.session if self.session is not None and not self.session.ended.is_set() else None

    def stop(self) -> None:
        """Stop the connection; `done` is set when it has ended."""
        self._stopping.set()
        self._wanted.set()
        for session in self._finishing:
            session.left.set()
        if self.session is not None:
            self.session.fail(None)
        elif self._connecting is not None:
            self._connecting.cancel()
        self._notify()

    async def usable(self, phase: str, seconds: float) -> Session:
        """Return a usable session, after a connection attempt if necessary; all waiting tasks share the same attempts.

        Raises:
            ServerUnavailableError: There is none in time, or there will be none.
        """
        if (session := self.ready_session) is not None:
            return session
        if self.circuit.retry_at is not None:
            raise self.failures.not_in_time(phase, self.error, self.circuit.hint)
        attempts = self._attempts
        if is_woken := self.is_idle or self._is_unused or self._is_waking:
            seconds = max(seconds, self.config.connect_timeout_seconds)
        self._waiters += 1
        if self._waiters == 1 or (self.error is not None and self.error.failure.is_permanent):
            self._wanted.set()
        try:
            with anyio.move_on_after(seconds):
                while not self._stopping.is_set():
                    if (session := self.ready_session) is not None:
                        return session
                    if self._attempts > attempts and self._is_in_vain(is_woken):
                        break
                    await self._changed.wait()
        finally:
            self._waiters -= 1
        if self._stopping.is_set():
            raise self.failures.closed(phase)
        raise self.failures.not_in_time(phase, self.error, self.circuit.hint) from self.error

    def _is_in_vain(self, is_woken: bool) -> bool:
        """True if a task need not wait for further attempts after one that failed."""
        is_left_alone = is_woken or self.circuit.retry_at is not None
        return self.error is not None and (is_left_alone or self.error.failure.is_permanent)

    async def settled(self) -> None:
        """Wait until the first attempt has succeeded or failed."""
        while self._attempts == 0 and not self.done.is_set():
            await self._changed.wait()

    async def notified(self, seconds: float) -> None:
        """Wait briefly until the changes that listeners want are received."""
        if self.receiver is not None:
            with anyio.move_on_after(seconds):
                await self.receiver.settled()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Run the supervisor until `stop`."""
        if (observer := current.observer()) is not None:
            observer.upstream_added(self.config.name)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.deadlines.watch)
                async with anyio.create_task_group() as sessions:
                    await self._run_sessions(sessions)
                tasks.cancel_scope.cancel()
        except Exception:
            _logger.exception("internal error: the connection to the server %r ended", self.config.name)
        finally:
            self._stopping.set()
            self.session = None
            self.events.change_state(ConnectionState.CLOSED, None)
            self.done.set()
            self._notify()

    async def _run_sessions(self, sessions: TaskGroup) -> None:
        """Open one session after another until `stop`."""
        failures = 0
        if self.definitions:
            await self._rest()
        while not self._stopping.is_set():
            self._was_useful = self._is_unused = False
            connects = self.connects
            listeners = self.events.message_listeners
            session = Session(self.events, listeners.notify if listeners else None)
            error: ServerUnavailableError = await sessions.start(self._run_session, session)
            if self._stopping.is_set():
                break
            if self._is_unused:
                failures = self.circuit.failures = 0
                await self._rest()
                continue
            failures = 0 if self._was_useful else failures + 1
            self.circuit.failures = 0 if self._was_useful else self.circuit.failures + 1
            self._is_waking = False
            if self.connects == connects:
                self._attempts += 1
                if error.failure.is_permanent:  # tasks that wait get the error
                    self._wanted = anyio.Event()
                if self.error is None or error.failure.reason != self.error.failure.reason:
                    _logger.info("cannot reach the server %r: %s", self.config.name, error.failure.reason)
            self.error = error
            self.events.change_state(ConnectionState.after(error, was_ready=self.connects > 0), error)
            self._notify()
            if await self._pause(failures, error):
                failures = 0
            self.circuit.restarts += 1

    async def _rest(self) -> None:
        """Wait until a task needs the server."""
        self.is_idle, self.error = True, None
        self._attempts += 1
        self.events.change_state(ConnectionState.IDLE, None)
        self._notify()
        await self._wanted.wait()
        self.is_idle, self._wanted = False, anyio.Event()
        self._is_waking = True
        if not self._stopping.is_set():
            self.events.change_state(ConnectionState.CONNECTING, None)

    async def _pause(self, failures: int, error: ServerUnavailableError) -> bool:
        """Wait until the next attempt; returns True if a task requested it."""
        if self._stopping.is_set():
            return False
        if error.failure.is_permanent:
            await self._wanted.wait()
        elif self.config.transport.is_process and self.circuit.failures >= CIRCUIT_FAILURES:
            with self.circuit.opened(self._delay_seconds(self.circuit.failures)) as seconds:
                _logger.warning("server %r: %s", self.config.name, self.circuit.hint)
                self._notify()
                await self._reconnect.wait(self._stopping, seconds)
        elif self.definitions:
            await self._wanted.wait()
            self._is_waking = True
        else:
            await self._reconnect.wait(self._wanted, self._delay_seconds(failures))
        is_wanted, self._wanted = self._wanted.is_set(), anyio.Event()
        return is_wanted

    def _delay_seconds(self, failures: int) -> float:
        seconds = self._reconnect.delay_seconds(failures)
        # Without a required server, the process is not ready, so that no call wants it.
        return min(seconds, MAX_REQUIRED_DELAY_SECONDS) if self.config.required else seconds

    async def _run_session(self, session: Session, *, task_status: TaskStatus[ServerUnavailableError]) -> None:
        """Open a session, serve it until it ends, and close it.

        `task_status` gets the reason of the end, or of the failed start, as soon as the next session may be opened.
        """
        end = SessionEnd(task_status)
        scope = self._connecting = anyio.CancelScope()
        try:
            with scope:
                async with self._opened(session, scope) as receiver:
                    await self._serve_to_end(session, receiver, end, scope)
        except Exception as error:  # noqa: BLE001 - translated; the connection is retried after any error
            end.error = await self._failure(session, error, end.error)
        if not end.is_reported:
            self._connecting = self.session = None
            end.report(self.failures.too_slow(session) if end.error is None else end.error)

    @asynccontextmanager
    async def _opened(self, session: Session, scope: anyio.CancelScope) -> AsyncIterator[ChangeReceiver]:
        """Open a session, before the scope's deadline, which is removed then."""
        end_start = await self._starts.acquire() if self.config.transport.is_process else no_start
        try:
            scope.deadline = anyio.current_time() + self.config.connect_timeout_seconds
            last_kind = self.last.link.kind if self.last is not None else None
            opening = open_session(
                session, self.config, self.handlers, auth=self._auth, last_kind=last_kind, last_era=self._last_era
            )
            async with opening:
                receiver = await self._ready(session)
                end_start()
                scope.deadline = float("inf")
                self._connecting = None
                yield receiver
        finally:
            end_start()

    async def _serve_to_end(
        self, session: Session, receiver: ChangeReceiver, end: SessionEnd, scope: anyio.CancelScope
    ) -> None:
        """Serve a session until it ends, and limit the time of its shutdown.

        Running calls of an HTTP session continue after it has ended, and it is closed after the last of them: the
        server may still complete requests that it has accepted.
        """
        try:
            await self._serve(session, receiver)
            end.error = self._lost(session)
            if session.has_calls and session.link.finishes_calls and not self._stopping.is_set():
                end.report(end.error)
                self._finishing.add(session)
                await session.left.wait()
        finally:
            self._finishing.discard(session)
            if end.error is None:
                end.error = self._lost(session)
            is_meant = self._is_unused or self._stopping.is_set()
            scope.deadline = anyio.current_time() + (CLOSE_SECONDS if is_meant else _LOST_SECONDS)

    async def _failure(
        self, session: Session, error: Exception, end: ServerUnavailableError | None
    ) -> ServerUnavailableError:
        """Translate what a session raised, before or after its end."""
        if end is not None:
            return self.failures.lost(session, error) if session.reason is None else end
        await self._settle(session)
        if self._last_era == "handshake" or is_refusal(error):
            self._last_era = None  # the server may be another one now
        return self.failures.unavailable(error, session)

    async def _ready(self, session: Session) -> ChangeReceiver:
        if self.connects or self.definitions:
            await list_again(session, self.events, self.config.name)
            session.answers = session.usage.upkeep = 0  # so far, only listings
        session.usage.notes_tasks = self.definitions is not None
        self._is_waking = False
        self.connects += 1
        self._attempts += 1
        self.error = None
        self.session = self.last = session
        self._last_era = session.era
        self._wanted = anyio.Event()  # the request is fulfilled
        if (observer := current.observer()) is not None:
            observer.connected(self.config.name)
        self.task_notifications = TaskNotifications(session)
        self.receiver = ChangeReceiver(session, self.config.name, self._reconnect, self.events)
        self.events.change_state(ConnectionState.READY, None)
        self._notify()
        return self.receiver

    async def _serve(self, session: Session, receiver: ChangeReceiver) -> None:
        """Monitor a session until it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(HealthMonitor(session, self._reconnect).keep_alive)
            tasks.start_soon(receiver.run)
            if self.definitions is not None:
                tasks.start_soon(self._close_if_unused, session)
            await session.ended.wait()
            await self._settle(session)
            tasks.cancel_scope.cancel()

    async def _close_if_unused(self, session: Session) -> None:
        """End the session of a lazily started server after its idle time."""
        if await until_unused(session, self.config.idle_seconds, self._reconnect):
            _logger.info("server %r: not used for a while, so its process is ended", self.config.name)
            self._is_unused = True
            session.fail(None)

    def _lost(self, session: Session) -> ServerUnavailableError:
        """End a session; returns the reason."""
        session.fail(None)
        self.session = None
        self._was_useful = session.answers > 0
        error = self.failures.lost(session)
        if (observer := current.observer()) is not None:
            is_lost = not (self._is_unused or self._stopping.is_set())
            seconds = anyio.current_time() - session.ready_at
            observer.disconnected(session.labels, seconds, type(error).__name__ if is_lost else None)
        if not (self._is_unused or self._stopping.is_set()):
            _logger.info("lost the server %r: %s", self.config.name, error.failure.reason)
            self.events.change_state(ConnectionState.after(error, was_ready=True), error)
        return error

    async def _settle(self, session: Session) -> None:
        """Wait briefly for the exit code of an ended child."""
        if not self._stopping.is_set():
            await session.link.settle(_SETTLE_SECONDS)

"""Owner: the task that opens a connection's links one after the other, and replaces those that are lost.

    connect ──> greeted ──> serve until the link ends ──> leave ──╮
       ╰──────────── failed ────────────> back off, or be wanted ─┴──> connect …

The SDK's client must be entered and left by one task, so each link has a task of its own. A link by HTTP over which
calls still run is left when the last of them has ended; the next link is opened meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from bridge.client.connection.call import Deadlines
from bridge.client.connection.failures import ErrorTranslator
from bridge.client.connection.health import HealthMonitor
from bridge.client.connection.requests import peer_of
from bridge.client.connection.session import Session
from bridge.client.connection.state import ConnectionState
from bridge.client.transports.opening import DetectedTransport, open_session
from bridge.errors import ServerAuthError
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2
    from anyio.abc import TaskGroup, TaskStatus

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.state import Healing
    from bridge.errors import ServerError, ServerUnavailableError

_logger = logging.getLogger("bridge.client")

CLOSE_SECONDS = 3.0
"""How long saying goodbye may take; a child's end is bounded by itself."""
_LOST_SECONDS = 0.5
"""How long it may take where the server is probably not there to hear it."""
_SETTLE_SECONDS = 0.5
"""How long a child that has closed its output is given to end, so that its exit code can be told."""


class Supervisor:
    """Opens and closes one connection; its `run` is the owner task.

    Args:
        config: The server.
        handlers: Who answers its questions.
        healing: How soon it is tried again.
        auth: How HTTP requests are signed.
        changed: Called with each new state, and the error that led to it.
        relist: Called over each new link but the first, before anyone may use it.
        tools_changed: Called when the server says that its tools have changed.
        wants_changes: Says whether anybody would like to hear of that.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        handlers: ClientHandlers,
        healing: Healing,
        auth: httpx2.Auth | None,
        changed: Callable[[ConnectionState, ServerError | None], None],
        relist: Callable[[Session], Awaitable[None]],
        tools_changed: Callable[[], None],
        wants_changes: Callable[[], bool],
    ) -> None:
        self.link: Session | None = None
        """The link to use; None while there is none."""
        self.last: Session | None = None
        """The link that was greeted last, usable or not."""
        self.done = anyio.Event()
        self.connects = 0
        self.error: ServerUnavailableError | None = None
        self.failures = ErrorTranslator(config)
        self.findings = DetectedTransport()
        self.deadlines = Deadlines()
        self._config = config
        self._handlers = handlers
        self._healing = healing
        self._auth = auth
        self._tell = changed
        self._relist = relist
        self._tools_changed = tools_changed
        self._wants_changes = wants_changes
        self._changes_wanted = anyio.Event()
        self._watch: HealthMonitor | None = None
        self._stopping = anyio.Event()
        self._wanted = anyio.Event()
        self._changed = anyio.Event()
        self._attempts = 0
        self._waiters = 0
        self._was_useful = False
        self._answers_at_greeting = 0
        self._greeted_at = 0.0
        self._connecting: anyio.CancelScope | None = None
        self._finishing: set[Session] = set()

    # --- for everyone ------------------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stopping.is_set()

    @property
    def ready_link(self) -> Session | None:
        """The link to use at once; None where that has to be waited for."""
        return self.link if self.link is not None and not self.link.ended.is_set() else None

    def stop(self) -> None:
        """End the connection; `done` is set when it has ended."""
        self._stopping.set()
        self._wanted.set()
        for link in self._finishing:
            link.left.set()
        if self.link is not None:
            self.link.fail(None)
        elif self._connecting is not None:
            self._connecting.cancel()
        self._notify()

    async def usable(self, phase: str, seconds: float) -> Session:
        """A link to use: at once where there is one, else after an attempt that is begun at once.

        All who wait wait for the same attempts.

        Args:
            phase: What it is wanted for.
            seconds: How long to wait at most.

        Raises:
            ServerUnavailableError: There is none in time, or there will be none.
        """
        if (link := self.ready_link) is not None:
            return link
        attempts = self._attempts
        self._waiters += 1
        if self._waiters == 1 or (self.error is not None and self.error.failure.is_permanent):
            self._wanted.set()
        try:
            with anyio.move_on_after(seconds):
                while not self._stopping.is_set():
                    if (link := self.ready_link) is not None:
                        return link
                    if self._attempts > attempts and self.error is not None and self.error.failure.is_permanent:
                        break
                    await self._changed.wait()
        finally:
            self._waiters -= 1
        if self._stopping.is_set():
            raise self.failures.closed(phase)
        raise self.failures.not_in_time(phase, self.error) from self.error

    async def settled(self) -> None:
        """Wait until the first attempt has ended, well or not."""
        while self._attempts == 0 and not self.done.is_set():
            await self._changed.wait()

    async def watching(self, seconds: float) -> None:
        """Wait, for so long at most, until the server tells of changes, where it does and somebody wants to hear."""
        if self._changes_wanted.is_set() and self._watch is not None:
            with anyio.move_on_after(seconds):
                await self._watch.hears_changes.wait()

    def want_changes(self) -> None:
        """Somebody wants to hear when the tools change."""
        self._changes_wanted.set()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # --- the owner task ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be the owner task, until `stop`."""
        if (observer := switch.observer()) is not None:
            observer.upstream_added(self._config.name)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.deadlines.watch)
                async with anyio.create_task_group() as links:
                    await self._live_on(links)
                tasks.cancel_scope.cancel()
        except Exception:
            _logger.exception("the connection to the server %r ended by a mistake of ours", self._config.name)
        finally:
            self._stopping.set()
            self.link = None
            self._tell(ConnectionState.CLOSED, None)
            self.done.set()
            self._notify()

    async def _live_on(self, links: TaskGroup) -> None:
        """Open one link after the other, until `stop`."""
        failures = 0
        while not self._stopping.is_set():
            self._was_useful = False
            connects = self.connects
            error: ServerUnavailableError = await links.start(self._live, Session(self._tools_changed))
            if self._stopping.is_set():
                break
            failures = 0 if self._was_useful else failures + 1
            if self.connects == connects:
                self._attempts += 1
                if error.failure.is_permanent:  # whoever waited is told of it; who waits while a link is left is not
                    self._wanted = anyio.Event()
            self._fell(error)
            if await self._pause(failures, error):
                failures = 0

    def _fell(self, error: ServerUnavailableError) -> None:
        self.error = error
        self._tell(_state_after(error, was_ready=self.connects > 0), error)
        self._notify()

    async def _pause(self, failures: int, error: ServerUnavailableError) -> bool:
        """Wait until it is time to try again; returns whether that is because somebody wants it now."""
        if self._stopping.is_set():
            return False
        if error.failure.is_permanent:
            await self._wanted.wait()
        else:
            await self._healing.wait(self._wanted, self._healing.delay_seconds(failures))
        is_wanted, self._wanted = self._wanted.is_set(), anyio.Event()
        return is_wanted

    async def _live(self, link: Session, *, task_status: TaskStatus[ServerUnavailableError]) -> None:
        """Open a link, serve it until it ends, and close it.

        Calls that run over a link by HTTP go on when it has ended, and it is closed after the last of them: whether
        the server is there for new calls says nothing about those that it has accepted.

        Args:
            link: The link.
            task_status: Gets what ended the link, or kept it from beginning, as soon as the next one may be opened.
        """
        lost: ServerUnavailableError | None = None
        is_told = False
        scope = self._connecting = anyio.CancelScope(
            deadline=anyio.current_time() + self._config.connect_timeout_seconds
        )
        try:
            with scope:
                async with open_session(link, self._config, self._handlers, self.findings, self._auth):
                    watch = await self._greeted(link)
                    scope.deadline = float("inf")
                    self._connecting = None
                    try:
                        await self._serve(link, watch)
                        lost = self._lost(link)
                        if link.calls and link.kind in {"http", "sse"} and not self._stopping.is_set():
                            task_status.started(lost)
                            is_told = True
                            await self._finish(link)
                    finally:
                        lost = self._lost(link) if lost is None else lost
                        seconds = CLOSE_SECONDS if self._stopping.is_set() else _LOST_SECONDS
                        scope.deadline = anyio.current_time() + seconds
        except Exception as error:  # noqa: BLE001 - translated; whatever it is, the connection heals
            if lost is None:
                await self._settle(link)
                self.findings.is_legacy = False
                lost = self.failures.unavailable(error, link)
            elif link.reason is None:
                lost = self.failures.lost(link, error)
        if not is_told:
            self._connecting = None
            self.link = None
            task_status.started(self.failures.too_slow(link) if lost is None else lost)

    async def _finish(self, link: Session) -> None:
        """Wait for the end of the last call over a link that has ended, or for `stop`."""
        self._finishing.add(link)
        try:
            await link.left.wait()
        finally:
            self._finishing.discard(link)

    async def _greeted(self, link: Session) -> HealthMonitor:
        link.peer = peer_of(self._config, link.kind, link.protocol_version)
        if self.connects:
            await self._relist(link)
        self._answers_at_greeting = link.answers
        self.connects += 1
        self._attempts += 1
        self.error = None
        self.link = self.last = link
        self._wanted = anyio.Event()  # whoever wanted it has it
        self._greeted_at = anyio.current_time()
        if (observer := switch.observer()) is not None:
            observer.connected(self._config.name)
        watch = self._watch = HealthMonitor(link, self._config.name, self._healing, self._changes_wanted)
        if self._wants_changes():
            self._changes_wanted.set()
        self._tell(ConnectionState.READY, None)
        self._notify()
        return watch

    async def _serve(self, link: Session, watch: HealthMonitor) -> None:
        """Keep a link alive until it ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.keep_alive)
            if not watch.hears_changes.is_set():
                tasks.start_soon(watch.hear_changes)
            await link.ended.wait()
            await self._settle(link)
            tasks.cancel_scope.cancel()

    def _lost(self, link: Session) -> ServerUnavailableError:
        """Use a link no more; returns why."""
        link.fail(None)
        self.link = None
        self._was_useful = link.answers > self._answers_at_greeting
        error = self.failures.lost(link)
        if (observer := switch.observer()) is not None:
            is_lost = not self._stopping.is_set()
            seconds = anyio.current_time() - self._greeted_at
            observer.disconnected(link.peer, seconds, type(error).__name__ if is_lost else None)
        if not self._stopping.is_set():
            _logger.info("lost the server %r: %s", self._config.name, error.failure.reason)
            self._tell(_state_after(error, was_ready=True), error)
        return error

    async def _settle(self, link: Session) -> None:
        """Give a child that has ended time to be reaped."""
        if link.child is not None and not self._stopping.is_set():
            await link.child.settle(_SETTLE_SECONDS)


def _state_after(error: ServerUnavailableError, *, was_ready: bool) -> ConnectionState:
    if isinstance(error, ServerAuthError):
        return ConnectionState.NEEDS_AUTH
    is_healing = was_ready and not error.failure.is_permanent
    return ConnectionState.DEGRADED if is_healing else ConnectionState.FAILED

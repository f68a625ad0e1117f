"""RemoteList: one list of a server, such as its tools, kept up to date.

    settle ──> list ──> wait for a change, a reconnection, or expiry of the list ──> list …
                 ╰──── failed ────> back off ─────────────────────────────────┘

One task lists; other tasks request a new list from it. Items stay listed while the server is unavailable.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import anyio

from bridge.client.connection.status import ConnectionState
from bridge.client.connection_pool import MAX_IDLE_SECONDS
from bridge.errors import ServerError
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.client.connection.connection import Connection
    from bridge.client.connection.status import ReconnectPolicy
    from bridge.types import Feature

MIN_EXPIRY_SECONDS = 30.0
"""Minimum seconds between two lists caused by expiry, even if the server's TTL is shorter."""

_logger = logging.getLogger("bridge.client")


class Fetched(NamedTuple):
    """Outcome of one listing."""

    has_changed: bool
    """False if the list is as before."""
    ttl_seconds: float | None = None
    """Time to live of the list in seconds; None if not given."""


class RemoteList:
    """One list of a server.

    Args:
        feature: What is listed.
        reconnect: Delays after a failure.
        fetch: Lists the items and keeps them.
        changed: Called when the items have changed.
        idle: Called regularly while nothing happens.
        idle_seconds: Seconds between two such calls.

    Attributes:
        problem: The error of the last list; None after a success.
        is_listed: True after the items were listed at least once.
    """

    def __init__(
        self,
        feature: Feature,
        *,
        reconnect: ReconnectPolicy,
        fetch: Callable[[], Awaitable[Fetched]],
        changed: Callable[[], None],
        idle: Callable[[], None] = lambda: None,
        idle_seconds: float = MAX_IDLE_SECONDS,
    ) -> None:
        self.problem: ServerError | None = None
        self.is_listed = False
        self.is_started = False
        self._feature = feature
        self._reconnect = reconnect
        self._fetch = fetch
        self._changed = changed
        self._idle, self._idle_seconds = idle, idle_seconds
        self._connection: Connection | None = None
        self._expires_at: float | None = None
        self._failures = 0
        self._scope: anyio.CancelScope | None = None  # made in start(), inside the event loop
        self._stop_listening: tuple[Callable[[], None], ...] = ()
        self._begin()

    def _begin(self) -> None:
        self._wanted = anyio.Event()
        self._settled = anyio.Event()
        self._listed = anyio.Event()
        self._done = anyio.Event()

    def prepare(self) -> None:
        """Make waiters wait for the next start."""
        self._begin()

    def start(self, connection: Connection) -> None:
        """Start listing over a connection; see `settled`."""
        self.is_started = True
        self._connection = connection
        self._scope = anyio.CancelScope()
        self._stop_listening = (
            connection.on_list_changed(self._feature, self.want),
            connection.on_state(self._on_state),
        )
        start_detached(self._run, f"{self._feature} of {connection.name}")

    def release(self) -> None:
        """Release the waiters: no task will list."""
        self._done.set()
        self._settled.set()
        self._listed.set()

    async def settled(self) -> None:
        """Wait until the items are listed for the first time, or have failed to list."""
        await self._settled.wait()

    def cancel(self) -> None:
        """Stop listing; see `aclose`."""
        if self._scope is not None:
            self._scope.cancel()

    async def aclose(self) -> None:
        """Stop listing, and wait for the task. Items stay."""
        self.cancel()
        if self._stop_listening:
            await self._done.wait()
        for stop in self._stop_listening:
            stop()
        self._stop_listening = ()
        self.is_started = False

    @property
    def has_expired(self) -> bool:
        """True if the list's TTL has passed and the server does not announce changes."""
        return (
            self._expires_at is not None
            and anyio.current_time() >= self._expires_at
            and self._is_ready
            and not self._announces_changes
        )

    def want(self) -> None:
        """Request a new list."""
        self._wanted.set()

    async def refresh(self) -> None:
        """List again, and wait until that has succeeded or failed."""
        if not self._done.is_set():
            listed = self._listed
            self.want()
            await listed.wait()

    @property
    def _is_ready(self) -> bool:
        return self._connection is not None and self._connection.state is ConnectionState.READY

    @property
    def _announces_changes(self) -> bool:
        info = self._connection.server_info if self._connection is not None else None
        return info is not None and info.announces(self._feature)

    def _on_state(self, state: ConnectionState) -> None:
        # The connection itself lists tools after a reconnection.
        if state is ConnectionState.READY and (
            self.problem is not None or not self.is_listed or self._feature != "tools"
        ):
            self.want()

    async def _run(self) -> None:
        connection = self._connection
        assert self._scope is not None
        assert connection is not None
        try:
            with self._scope:
                await connection.settled()
                if connection.state not in {ConnectionState.READY, ConnectionState.IDLE}:
                    self.problem = connection.last_error
                    self._settled.set()
                    await self._wait()
                while True:
                    await self._list(connection.name)
                    self._settled.set()
                    await self._wait()
        except Exception:
            _logger.exception(
                "internal error: the %s of the server %r are no longer updated", self._feature, connection.name
            )
        finally:
            self.release()

    async def _wait(self) -> None:
        """Wait until the items must be listed."""
        while not self._wanted.is_set():
            seconds = self._seconds_to_wait()
            await self._reconnect.wait(self._wanted, self._idle_seconds if seconds is None else seconds)
            if seconds is not None:
                self.want()
            self._idle()

    def _seconds_to_wait(self) -> float | None:
        """Seconds until the items are listed without a notification; None for never."""
        if not self._is_ready:
            return None
        if self.problem is not None:
            return self._reconnect.delay_seconds(self._failures)
        if self._expires_at is None or self._announces_changes:
            return None
        return max(self._expires_at - anyio.current_time(), MIN_EXPIRY_SECONDS)

    async def _list(self, server: str) -> None:
        listed = self._listed
        self._wanted = anyio.Event()  # requests from here on need another list
        self._listed = anyio.Event()
        try:
            fetched = await self._fetch()
        except ServerError as error:
            self.problem = error
            self._failures += 1
            severity = logging.WARNING if self._failures == 1 else logging.DEBUG
            _logger.log(severity, "the %s of the server %r cannot be listed: %s", self._feature, server, error)
        else:
            self.problem, self._failures = None, 0
            ttl_seconds = fetched.ttl_seconds
            self._expires_at = None if ttl_seconds is None else anyio.current_time() + ttl_seconds
            if fetched.has_changed or not self.is_listed:
                self.is_listed = True
                self._changed()
        listed.set()

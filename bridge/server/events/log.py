"""EventLog: the emitted events of one server, on their way to its store, and the streams that wait for them.

emit, in any thread ─> queue ─> store ─> streams and webhooks, which are woken
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import anyio

from bridge.portal import call_soon_here
from bridge.server.events.store import OVERHEAD_BYTES, EventStoreError, record_to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.events.store import EventRecord, EventStore, Page

MAX_QUEUED_EVENTS = 1_000
"""Maximum of events that wait for the store, such as before the server is started; the oldest are dropped."""
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Maximum of their bytes."""
_RETRY_SECONDS = 1.0
_logger = logging.getLogger("bridge.server")


class Wakeup:
    """Wakes one task of an event loop, from any thread."""

    def __init__(self) -> None:
        self._call_soon = call_soon_here()
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the task, which may not wait yet."""
        with suppress(RuntimeError):  # its loop has ended
            self._call_soon(self._event.set)

    async def wait(self) -> None:
        """Wait for the next `set`."""
        await self._event.wait()
        self._event = anyio.Event()


class EventLog:
    """The events of one server.

    Args:
        make_store: Makes the store that keeps them, when it is first used.
    """

    def __init__(self, make_store: Callable[[], EventStore]) -> None:
        self._make_store = make_store
        self._queue: deque[tuple[EventRecord, int]] = deque()
        self._queued_bytes = 0
        self._lock = Lock()
        self._writing = anyio.Lock()
        self._is_open = False
        self._waiting: set[Wakeup] = set()

    @cached_property
    def store(self) -> EventStore:
        """The store."""
        return self._make_store()

    # --- emission -----------------------------------------------------------------------------------------------------

    def put(self, record: EventRecord) -> None:
        """Take an event, in any thread."""
        size_bytes, dropped = OVERHEAD_BYTES + len(record_to_json(record)), 0
        with self._lock:
            self._queue.append((record, size_bytes))
            self._queued_bytes += size_bytes
            while len(self._queue) > MAX_QUEUED_EVENTS or self._queued_bytes > MAX_QUEUED_BYTES:
                self._queued_bytes -= self._queue.popleft()[1]
                dropped += 1
        if dropped:
            _logger.warning("dropped %d events that could not be stored: too many wait", dropped)
        self.wake()

    def wake(self) -> None:
        """Wake all that wait for events, in any thread."""
        for each in tuple(self._waiting):
            each.set()

    async def open(self) -> None:
        """Open the store, unless it is open.

        Raises:
            EventStoreError: It cannot be opened.
        """
        await self._write()

    async def _write(self) -> None:
        """Store the events of the queue.

        Raises:
            EventStoreError: The store cannot be used; they stay in the queue.
        """
        if not self._queue and self._is_open:
            return
        async with self._writing:
            if not self._is_open:
                await self.store.open()
                self._is_open = True
            while self._queue:
                with self._lock:
                    taken = list(self._queue)
                await self.store.append([record for record, _ in taken])
                with self._lock:  # meanwhile the oldest may have been dropped
                    stored = set(map(id, taken))
                    while self._queue and id(self._queue[0]) in stored:
                        self._queued_bytes -= self._queue.popleft()[1]

    # --- reading ------------------------------------------------------------------------------------------------------

    async def newest(self) -> str:
        """Return the position after all emitted events.

        Raises:
            EventStoreError: The store cannot be used.
        """
        await self._write()
        return await self.store.newest()

    async def read(self, cursor: str, limit: int) -> Page:
        """Return events after a position; see `EventStore.read`."""
        await self._write()
        return await self.store.read(cursor, limit)

    def woken(self) -> tuple[Wakeup, Callable[[], None]]:
        """Return a wakeup that is set after each event, and a function that ends that."""
        wakeup = Wakeup()
        self._waiting.add(wakeup)
        return wakeup, lambda: self._waiting.discard(wakeup)

    # --- the server's lifespan ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Store events as they are emitted, and wake streams for those of other processes, until cancelled."""
        async with anyio.create_task_group() as tasks:
            if self.store.is_shared:
                tasks.start_soon(self._follow)
            wakeup, _ = self.woken()
            while True:
                try:
                    await self._write()
                except EventStoreError as error:
                    _logger.warning("events wait to be stored: %s", error)
                    await anyio.sleep(_RETRY_SECONDS)
                    continue
                await wakeup.wait()

    async def _follow(self) -> None:
        """Wake streams for the events of other processes."""
        cursor: str | None = None
        while True:
            try:
                cursor = await self.store.newest() if cursor is None else cursor
                await self.store.wait(cursor)
                newest = await self.store.newest()
            except EventStoreError as error:
                _logger.warning("events of other processes cannot be read: %s", error)
                cursor = None
                await anyio.sleep(_RETRY_SECONDS)
                continue
            if newest != cursor:
                cursor = newest
                self.wake()

    async def close(self) -> None:
        """Store what is left, and close the store."""
        try:
            await self._write()
        except EventStoreError as error:
            _logger.error("%d events are lost: %s", len(self._queue), error)  # noqa: TRY400 - the traceback says nothing more
        self._is_open = False
        await self.store.close()

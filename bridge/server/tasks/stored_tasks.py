"""The stored tasks of one server: their store, their maxima, and their expiry."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, LIMIT_EXCEEDED
from bridge.server.limits.shares import Shares
from bridge.server.tasks.store import MemoryTaskStore, TaskStoreError
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.store import TaskRecord, TaskStore
    from bridge.tools.caller import Caller

_logger = logging.getLogger("bridge.server")

RETRY_SECONDS = 10
"""Time after which a client may try again what the server has no room for."""
MAX_BYTES_OPTION = "--max-task-bytes"
"""Name of the option for the stored bytes, in errors."""


class StoredTasks:
    """Keeps tasks in a store until they expire.

    Args:
        options: The store and the maxima.
        expired: Called with the id of a task that has expired; returns True if it runs, and is deleted when it ends.
    """

    def __init__(self, options: TaskOptions, expired: Callable[[str], bool]) -> None:
        self._store = cast("TaskStore", options.store or MemoryTaskStore())
        self._expired = expired
        self._unfinished = Shares(options.max_tasks)
        self._bytes = Shares(options.max_bytes)
        self._kept: dict[str, _Kept] = {}
        self._deletions: set[asyncio.Task[None]] = set()

    @property
    def is_durable(self) -> bool:
        """True if tasks outlive the process."""
        return self._store.is_durable

    def check_room(self, account: str, stored_bytes: int = 0) -> None:
        """Refuse a further task over a maximum.

        Raises:
            ProtocolError: There is no room; its data says when to try again.
        """
        if not self._unfinished.has_room(account, 1):
            raise over_maximum("tasks")
        if not self._bytes.has_room(account, stored_bytes):
            raise over_maximum("bytes")

    async def create(self, record: TaskRecord) -> None:
        """Store a new task.

        Raises:
            ProtocolError: There is no room, or it cannot be stored.
        """
        self.check_room(record.account, record.stored_bytes)
        self._keep(record)
        try:
            await self._store.save(record)
        except BaseException as error:
            self._forget(record.task.id)
            self.end(record.account)
            if not isinstance(error, TaskStoreError):
                raise
            raise not_stored(record.tool, error) from None

    async def save(self, record: TaskRecord) -> None:
        """Store a changed task.

        Raises:
            TaskStoreError: The store cannot be written.
        """
        await self._store.save(record)

    def has_room_for_outcome(self, record: TaskRecord) -> bool:
        """Count the bytes of an outcome; return False without room."""
        kept = self._kept[record.task.id]
        if not self._bytes.has_room(kept.account, record.stored_bytes - kept.stored_bytes):
            return False
        self._bytes.give_back(kept.account, kept.stored_bytes)
        self._bytes.take(kept.account, record.stored_bytes)
        self._kept[record.task.id] = kept._replace(stored_bytes=record.stored_bytes)
        return True

    def end(self, account: str) -> None:
        """Give back the place of a task that has ended."""
        self._unfinished.give_back(account)

    async def find(self, task_id: str, owner: str, running: TaskRecord | None) -> TaskRecord:
        """Return a task of a caller.

        Args:
            task_id: Its id.
            owner: The caller's name.
            running: The task, if it runs in this process.

        Raises:
            ProtocolError: The caller has no such task, or the store cannot be read.
        """
        with store_errors():
            record = running or await self._store.find(task_id)
        if record is None or record.owner != owner or _seconds_left(record) == 0:
            raise unknown_task(task_id)
        return record

    async def delete(self, task_id: str) -> None:
        """Delete a task."""
        try:
            await self._store.delete(task_id)
        except TaskStoreError as error:
            _logger.error("an expired task could not be deleted: %s", error)  # noqa: TRY400 - it says why
        self._forget(task_id)

    async def open(self) -> Sequence[TaskRecord]:
        """Open the store; return the tasks of earlier processes that have not ended.

        Raises:
            TaskStoreError: The store cannot be opened, or another process uses it.
        """
        unfinished = []
        for record in await self._store.open():
            self._keep(record, is_new=not record.task.is_final)
            if not record.task.is_final:
                unfinished.append(record)
        return unfinished

    async def close(self) -> None:
        """Close the store."""
        for task_id in tuple(self._kept):
            self._forget(task_id)
        if self._deletions:
            await asyncio.wait(self._deletions)
        await self._store.close()

    def _keep(self, record: TaskRecord, *, is_new: bool = True) -> None:
        seconds, timer = _seconds_left(record), None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._expire, record.task.id)
        self._kept[record.task.id] = _Kept(record.account, record.stored_bytes, timer)
        self._bytes.take(record.account, record.stored_bytes)
        if is_new:
            self._unfinished.take(record.account)

    def _forget(self, task_id: str) -> None:
        if (kept := self._kept.pop(task_id, None)) is not None:
            self._bytes.give_back(kept.account, kept.stored_bytes)
            if kept.timer is not None:
                kept.timer.cancel()

    def _expire(self, task_id: str) -> None:
        if not self._expired(task_id):
            deletion = asyncio.get_running_loop().create_task(self.delete(task_id))
            self._deletions.add(deletion)
            deletion.add_done_callback(self._deletions.discard)


class _Kept(NamedTuple):
    """A stored task."""

    account: str
    stored_bytes: int
    timer: asyncio.TimerHandle | None
    """Deletes it."""


def over_maximum(reached: Literal["tasks", "bytes"]) -> ProtocolError:
    """Return the error of a further task over a maximum."""
    limit = "--max-tasks" if reached == "tasks" else MAX_BYTES_OPTION
    message = f"too many tasks ({limit} of the server): try again in {RETRY_SECONDS} seconds"
    return ProtocolError(LIMIT_EXCEEDED, message, {"limit": limit, "retryAfterSeconds": RETRY_SECONDS})


def unknown_task(task_id: str) -> ProtocolError:
    """Return the error of a task that its caller does not have."""
    message = f"there is no task {clip(task_id)!r}: the id is wrong, or the task has expired"
    return ProtocolError(INVALID_PARAMS, message)


def not_stored(tool: str, error: TaskStoreError) -> ProtocolError:
    """Log why a new task could not be stored, and return the error for its client."""
    _logger.error("a task of %r could not be stored: %s", tool, error)
    return _retry_later(f"the task of {tool!r} could not be stored")


@contextmanager
def store_errors() -> Iterator[None]:
    """Log an error of a store in this block, and raise the one for the client instead."""
    try:
        yield
    except TaskStoreError as error:
        _logger.error("the store of tasks: %s", error)  # noqa: TRY400 - it says why
        raise _retry_later("the store of tasks does not respond") from None


def _retry_later(reason: str) -> ProtocolError:
    message = f"{reason}: try again in {RETRY_SECONDS} seconds"
    return ProtocolError(INTERNAL_ERROR, message, {"retryAfterSeconds": RETRY_SECONDS})


def _seconds_left(record: TaskRecord) -> float | None:
    expires_at = record.expires_at
    return None if expires_at is None else max(0.0, expires_at - time())


def owner_of(caller: Caller | None) -> str:
    """Return the name that a task is bound to; empty without authentication."""
    return "" if caller is None else caller.name

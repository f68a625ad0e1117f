"""A task that this process has claimed from Redis, and how its states and its end are stored."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from bridge.server.tasks.running_task import without_room
from bridge.server.tasks.store import TaskStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.tasks.running_task import RunningTask
    from bridge.server.tasks.shared.redis_store import Claim, RedisTaskStore
    from bridge.server.tasks.store import TaskRecord

_logger = logging.getLogger("bridge.server")

_SAVE_AGAIN_SECONDS = 5.0


class ClaimedTask:
    """A task that this process has claimed.

    Args:
        store: The Redis.
        claim: The claim.
        seconds_left: Time until it expires, when it was claimed: clocks of processes differ, so this is not a time of
            day. None for never.
        may_run_again: True if a further run of its tool is harmless.
    """

    def __init__(self, store: RedisTaskStore, claim: Claim, seconds_left: float | None, *, may_run_again: bool) -> None:
        self.claim = claim
        self.running: RunningTask | None = None
        """The running task; None before its call begins."""
        self._store = store
        self._seconds_left = seconds_left
        self._may_run_again = may_run_again
        self._timer: asyncio.TimerHandle | None = None
        self._is_lost = False

    def run(self, running: RunningTask) -> None:
        """Note that its call has begun, and let it expire in time."""
        self.running = running
        if self._seconds_left is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._seconds_left), running.expire)

    async def put(self, running: RunningTask) -> None:
        """Store its state.

        Raises:
            TaskStoreError: Redis does not answer.
        """
        if await self._store.put(running.record, self.claim) == "lost":
            self._lose()

    async def restore(self, running: RunningTask) -> None:
        """Store it again if Redis has lost it."""
        record = replace(running.record, answers=running.channel.answers)
        with suppress(TaskStoreError):
            state = await self._store.restore(record, self.claim, may_run_again=self._may_run_again)
            if state in {"lost", "ended"}:
                self._lose()

    async def end(
        self, running: RunningTask, record: TaskRecord, max_bytes: int, *, is_ending: bool, failed: Callable[[], None]
    ) -> TaskRecord:
        """Store its end, again and again if Redis fails; return it as it was stored.

        Args:
            running: The running task.
            record: The task with its outcome.
            max_bytes: Maximum of stored bytes.
            is_ending: True if this process ends; the task then runs elsewhere, if that is harmless.
            failed: Called after each failure.
        """
        if self._timer is not None:
            self._timer.cancel()
        has_failed = False
        while not self._is_lost:
            try:
                if running.is_expired:
                    await self._store.forget(record.task.id, self.claim.runner)
                    return record
                if is_ending and self._may_run_again and record.task.status == "failed":
                    waiting = running.record.changed(status="working", questions={}, updated_at=time())
                    await self._store.release(waiting, self.claim, is_counted=False, has_begun=True)
                    return record
                ended = await self._store.finish(record, self.claim, max_bytes)
                if ended == "full":
                    record = without_room(record)
                    ended = await self._store.finish(record, self.claim, None)
            except TaskStoreError as error:
                _logger.error("the outcome of a task of %r is not stored yet: %s", record.tool, error)  # noqa: TRY400 - it says why
                has_failed = True
                failed()
                await asyncio.sleep(_SAVE_AGAIN_SECONDS)
                continue
            if ended != "gone":
                if ended == "lost" or (ended == "ended" and not has_failed):
                    self._lose()
                return record
            await self.restore(running)
        return record

    def _lose(self) -> None:
        """Cancel its call: another process has taken it over, because this one was silent for too long."""
        if not self._is_lost and self.running is not None:
            self._is_lost = True
            tool = self.running.record.tool
            _logger.error("a task of %r was taken over while this process was silent; its outcome is dropped", tool)
            self.running.work.cancel()

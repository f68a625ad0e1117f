"""Tasks that this process has created, and left to others: if Redis loses them, they fail with an unknown outcome.

Such a task may have waited, run, or ended. A process that runs it stores it again, and its outcome then counts.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR
from bridge.server.tasks.running_task import failed_record
from bridge.server.tasks.shared.dead_processes import record_end
from bridge.server.tasks.shared.redis_store import LOST

if TYPE_CHECKING:
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.server.tasks.store import TaskRecord
    from bridge.telemetry.tasks import TaskTelemetry

_logger = logging.getLogger("bridge.server")


class DelegatedTasks:
    """The tasks that this process has left to others, and that have not ended as far as it knows.

    Args:
        store: The Redis.
        most: Maximum number of tasks; the oldest is dropped.
        watched: Records their ends; None for no observation.
    """

    def __init__(self, store: RedisTaskStore, most: int, watched: TaskTelemetry | None) -> None:
        self._store = store
        self._most = most
        self._watched = watched
        self._records: dict[str, TaskRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: TaskRecord) -> None:
        """Add a task."""
        self._records[record.task.id] = replace(record, request=b"")
        oldest = next(iter(self._records.values()))
        if len(self._records) > self._most or (oldest.expires_at or math.inf) < time():
            self.discard(oldest.task.id)

    def discard(self, task_id: str) -> None:
        """Remove a task that has ended."""
        self._records.pop(task_id, None)

    async def fail_lost(self) -> None:
        """Store those that Redis does not have any more as failed.

        Raises:
            TaskStoreError: Redis does not answer; the rest is left for the next time.
        """
        failed = 0
        for task_id, record in tuple(self._records.items()):
            message = f"Redis has lost this task of {record.tool!r}, and its outcome is unknown"
            ended = failed_record(record, ProtocolError(INTERNAL_ERROR, message))
            if await self._store.restore(ended, LOST, may_run_again=False) == "held":
                record_end(self._watched, ended, None)
                self.discard(task_id)
                failed += 1
        if failed:
            _logger.error("Redis has lost %d tasks that this process had left to others; they have failed", failed)

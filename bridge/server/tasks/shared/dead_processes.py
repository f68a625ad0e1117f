"""Tasks whose processes have died, and how their ends are recorded."""

from __future__ import annotations

import logging
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from pydantic_core import from_json

from bridge.server.tasks.restarts import MAX_RUNS, read_rerun
from bridge.server.tasks.running_task import failed_record, outcome_unknown
from bridge.server.tasks.shared.redis_store import MalformedTaskError
from bridge.telemetry.tasks import error_type_of

if TYPE_CHECKING:
    from bridge.server.tasks.restarts import Rerun
    from bridge.server.tasks.shared.redis_store import RedisTaskStore, SharedRecord
    from bridge.server.tasks.store import TaskRecord
    from bridge.telemetry.tasks import TaskTelemetry

_logger = logging.getLogger("bridge.server")


async def take_over(store: RedisTaskStore, runner: str, watched: TaskTelemetry | None) -> None:
    """End the tasks of a dead process, or let them run again if that is harmless.

    Args:
        store: The Redis.
        runner: The process.
        watched: Records the ends; None for no observation.

    Raises:
        TaskStoreError: Redis does not answer; the other tasks are left for the next time.
    """
    held = await store.held_by(runner)
    for task_id in held:
        try:
            found = await store.find_with_request(task_id)
        except MalformedTaskError as error:  # which must not keep the others from ending
            _logger.error("%s; it is left out", error)  # noqa: TRY400 - it says why
            continue
        if found is None or found.claim.runner != runner:  # expired, or taken over by another process
            continue
        record = found.record
        if found.is_cancelled:
            await _end(store, cancelled_record(record), found, watched)
        elif found.may_run_again and record.runs < MAX_RUNS:
            waiting = record.changed(status="working", questions={}, updated_at=time())
            await store.release(waiting, found.claim, is_counted=True, has_begun=True)
        else:
            await _end(store, failed_record(record, outcome_unknown(record.tool)), found, watched)
    await store.unregister(runner)
    if held:
        _logger.warning("took over tasks of the process %s, which has ended: %d", runner, len(held))


async def _end(store: RedisTaskStore, ended: TaskRecord, found: SharedRecord, watched: TaskTelemetry | None) -> None:
    if await store.finish(replace(ended, request=b""), found.claim, None) == "done":
        record_end(watched, ended, read_rerun(found.record))


def record_end(watched: TaskTelemetry | None, ended: TaskRecord, rerun: Rerun | None) -> None:
    """Record the end of a task that does not run in this process, in the trace of its call."""
    if watched is None:
        return
    task = ended.task
    code = from_json(task.outcome)["code"] if task.outcome else None
    error_type = error_type_of(task.status, code, is_error=False) or ""
    with watched.continued({} if rerun is None else rerun.trace):
        operation = watched.started(task.id, ended.tool, ended.owner or None, task.created_at, ended.team)
        watched.ended(operation, task.status, error_type)


def cancelled_record(record: TaskRecord) -> TaskRecord:
    """Return a task that was cancelled now."""
    return record.changed(status="cancelled", questions={}, updated_at=time())

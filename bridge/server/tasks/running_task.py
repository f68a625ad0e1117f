"""A task that runs in this process: its work, its state, its outcome, and its record in the store."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, LIMIT_EXCEEDED
from bridge.server.failures import failed
from bridge.server.tasks.store import TaskStoreError
from bridge.server.tasks.stored_tasks import MAX_BYTES_OPTION, store_errors
from bridge.telemetry.tasks import error_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.tasks.channel import TaskChannel
    from bridge.server.tasks.store import TaskRecord
    from bridge.server.tasks.stored_tasks import StoredTasks
    from bridge.server.tasks.work import Work
    from bridge.telemetry.tasks import TaskOperation
    from bridge.tools.task import TaskStatus
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

_SAVE_AGAIN_SECONDS = 5.0
_UNKNOWN = "the server ended while {tool!r} ran, and its outcome is unknown"


class RunningTask:
    """A task while its call runs; on asyncio.

    Args:
        record: The task as it was stored.
        channel: Channel of the call.
        work: The task of the event loop that runs the call.
        kept: The store.
        changed: Called after each change of the state.
    """

    def __init__(
        self,
        record: TaskRecord,
        channel: TaskChannel,
        work: Work,
        kept: StoredTasks,
        changed: Callable[[RunningTask], None],
    ) -> None:
        self.record = record
        """The task now."""
        self.channel = channel
        self.work = work
        self.is_expired = False
        self._kept = kept
        self._saving = asyncio.Lock()  # so that no earlier state replaces a later one
        self._changed = changed
        self._is_cancelled = False
        self.operation: TaskOperation | None = None
        """Its observation; None without telemetry."""
        channel.become_task(self._update)

    async def answer(self, answers: Mapping[str, Json]) -> None:
        """Give the call answers to open questions; others are ignored.

        Raises:
            ProtocolError: One does not match its question, or they cannot be stored.
        """
        async with self._saving:
            found = self.channel.checked(answers)
            if found and self.record.request:  # another process may need them
                record = replace(self.record, answers={**self.channel.answers, **found})
                if not (self._is_cancelled or self.work.done()):
                    await self._save(record)
                self.record = replace(self.record, answers=record.answers)
            self.channel.answer(found)

    def interrupt(self) -> None:
        """Cancel the call at its client's request, once: a further cancellation would interrupt its clean-up."""
        if not self._is_cancelled:
            self._is_cancelled = True
            self.work.cancel()

    async def cancel(self) -> None:
        """Cancel the call at its client's request.

        The stored task is cancelled when this returns, so that no other process runs it again.

        Raises:
            ProtocolError: The cancellation could not be stored.
        """
        async with self._saving:
            if self.work.done():
                return
            self.interrupt()
            if self._kept.is_durable:
                await self._save(self.record.changed(status="cancelled", questions={}, updated_at=time()))

    async def _save(self, record: TaskRecord) -> None:
        with store_errors():
            await self._kept.save(record)

    async def save_outcome(self, record: TaskRecord, failed: Callable[[], None]) -> None:
        """Store the outcome, again and again if the store fails, until the task expires.

        Args:
            record: The task with its outcome, which is found in this process from the first failure on.
            failed: Called after each failure.
        """
        while not self.is_expired:
            try:
                async with self._saving:
                    await self._kept.save(record)
            except TaskStoreError as error:
                _logger.error("the outcome of a task of %r is not stored yet: %s", record.tool, error)  # noqa: TRY400 - it says why
                self.record = record
                failed()
                self._changed(self)
                await asyncio.sleep(_SAVE_AGAIN_SECONDS)
            else:
                return

    def expire(self) -> None:
        """Cancel the call, and mark the task to be deleted."""
        self.is_expired = True
        self.work.cancel()

    @property
    def ended(self) -> TaskRecord:
        """The task with the outcome of its work, which has ended."""
        status, outcome = self._outcome()
        return self.record.changed(status=status, outcome=outcome, questions={}, updated_at=time())

    def _outcome(self) -> tuple[TaskStatus, bytes]:
        if self.work.cancelled():
            if self._is_cancelled or self.is_expired:
                return "cancelled", b""
            return "failed", _as_json(outcome_unknown(self.record.tool))
        error = self.work.exception()
        if error is None:
            return "completed", self.work.result()[0]
        known = error if isinstance(error, ProtocolError) else failed(self.record.tool, error)
        return "failed", _as_json(known)

    def _update(self) -> None:
        task, questions = self.record.task, self.channel.questions
        status: TaskStatus = "input_required" if questions else "working"
        message = self.channel.message or task.status_message
        if not task.is_final and (status, message, questions) != (task.status, task.status_message, task.questions):
            self.record = self.record.changed(
                status=status, status_message=message, questions=questions, updated_at=time()
            )
            if self.operation is not None:
                self.operation.is_waiting = bool(questions)
            self._changed(self)

    def error_type(self, record: TaskRecord) -> str | None:
        """Return the error type of its last state, for telemetry; None for a success."""
        task, code, is_error = record.task, None, False
        if task.status == "failed":
            code = from_json(task.outcome)["code"]
        elif task.status == "completed":
            is_error = bool(self.work.result()[1].get("isError"))
        return error_type_of(task.status, code, is_error=is_error)


def outcome_unknown(tool: str) -> ProtocolError:
    """Return the error of a task whose process ended while it ran."""
    return ProtocolError(INTERNAL_ERROR, _UNKNOWN.format(tool=tool))


def failed_record(record: TaskRecord, error: ProtocolError) -> TaskRecord:
    """Return a task that has failed with an error."""
    return record.changed(status="failed", outcome=_as_json(error), questions={}, updated_at=time())


def without_room(record: TaskRecord) -> TaskRecord:
    """Return a task that has failed because its outcome is over the maximum of stored bytes."""
    message = f"there is no room for the result of {record.tool!r}, which has {len(record.task.outcome)} bytes"
    return failed_record(record, ProtocolError(LIMIT_EXCEEDED, message, {"limit": MAX_BYTES_OPTION}))


def _as_json(error: ProtocolError) -> bytes:
    wire: dict[str, Any] = {"code": error.code, "message": error.message}
    return to_json(wire if error.data is None else wire | {"data": error.data})

"""Tasks that any process of a server runs, and any replica answers for, through Redis.

    call ─> task, held by its process ─┬─> runs here                    there is room
                                       ╰─> queue ─> another claims it   there is none, or this process ends

State and outcome are on Redis, where any replica finds them.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_REQUEST
from bridge.server.tasks.answers import checked_answers
from bridge.server.tasks.restarts import headers_to_keep, may_run_again, read_rerun, rerun_request
from bridge.server.tasks.shared.dead_processes import cancelled_record, record_end
from bridge.server.tasks.shared.redis_store import Claim
from bridge.server.tasks.shared.runner import TaskRunner
from bridge.server.tasks.store import TaskStoreError
from bridge.server.tasks.stored_tasks import not_stored, over_maximum, owner_of, store_errors, unknown_task
from bridge.server.tasks.tasks import Tasks
from bridge.wire.tasks import created_task_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bridge.server.tasks.channel import TaskChannel
    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.running_task import RunningTask
    from bridge.server.tasks.shared.redis_store import RedisTaskStore, SharedRecord
    from bridge.server.tasks.store import TaskRecord
    from bridge.server.tasks.work import TaskCall, TaskServer, Work
    from bridge.tools.caller import Caller
    from bridge.tools.task import Task
    from bridge.tools.tool import Tool
    from bridge.types import Json

_UNSERVED_SECONDS = 5.0
"""Time within which a process that runs a tool says so."""
_UNSERVED = "no process that takes tasks of {tool!r} is connected: the task waits for one, such as bridge worker"


class SharedTasks(Tasks):
    """The tasks of one process of a server; see `Tasks`.

    Args:
        calls: Runs the calls.
        options: Options of the tasks.
        store: The Redis.
    """

    def __init__(self, calls: TaskServer, options: TaskOptions, store: RedisTaskStore) -> None:
        super().__init__(calls, replace(options, store=None))
        self.options = options
        self._shared = store
        store.connect(calls.name)
        self._maxima = options.max_tasks, options.max_bytes
        self.runner = TaskRunner(calls, options, store, self._started, self._watched)
        """Runs tasks in this process."""
        store.replica.on_message("changed", self._receive_change)
        store.replica.on_return.append(self._notify_all)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Context in which this process is connected to the others, and runs tasks."""
        self._is_closing = False
        async with self._shared.replica.running(), self.runner.running():
            try:
                yield
            finally:
                self.drain()
                await self.close()

    def drain(self) -> None:
        """Claim no further tasks."""
        self.runner.is_draining = True

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _begin(self, record: TaskRecord, call: TaskCall) -> Json:
        """Store a task, and begin it here if there is room; otherwise, it waits for another process."""
        if call.access.missing(call.tool.name):
            raise ProtocolError(INVALID_REQUEST, f"the tool {call.tool.name!r} needs a scope that was not granted")
        record = replace(record, answers=call.channel.answers)
        await self._create(record, call.tool)
        rerun = read_rerun(record)
        if rerun is None:  # JSON cannot express the call
            self._started(record, call.channel, call.start(self._calls, self._watched))
        elif self.runner.has_room:
            self.runner.begin(record, rerun, record.answers)
        else:
            await self.runner.pass_on(record)
        return created_task_to_wire(record.task)

    async def _create(self, record: TaskRecord, tool: Tool) -> None:
        task_id, again = record.task.id, bool(record.request) and may_run_again(tool)
        self.runner.starting.add(task_id)
        try:
            reached = await self._shared.create(record, self._maxima, self._shared.replica.id, may_run_again=again)
        except BaseException as error:
            # Redis may have stored it. It belongs to this process, which deletes it before anyone can run it.
            self.runner.undo(task_id)
            if not isinstance(error, TaskStoreError):
                raise
            raise not_stored(record.tool, error) from None
        if reached != "ok":
            self.runner.starting.discard(task_id)
            raise over_maximum(reached)
        claim = Claim(self._shared.replica.id, "1")
        self.runner.hold(task_id, claim, record.task.ttl_seconds, may_run_again=again)

    async def _check_room(self, account: str) -> None:
        with store_errors():
            reached = await self._shared.room(account, 0, self._maxima)
        if reached != "ok":
            raise over_maximum(reached)

    def _stored_request(self, call: TaskCall) -> bytes:
        trace = {} if self._watched is None else self._watched.trace_to_carry()
        return rerun_request(call.arguments, call.context, headers_to_keep(call.context.headers), trace)

    def _started(self, record: TaskRecord, channel: TaskChannel, work: Work) -> RunningTask:
        running = super()._started(record, channel, work)
        self.runner.add(running)
        return running

    def _notify(self, running: RunningTask) -> None:
        self.runner.put(running)

    async def _store_end(self, running: RunningTask, record: TaskRecord) -> TaskRecord:
        return await self.runner.end(
            running, record, is_ending=self._is_ending, failed=partial(self._calls.running.leave, running.work)
        )

    # --- requests for tasks -------------------------------------------------------------------------------------------

    async def get(self, task_id: str, caller: Caller | None) -> Task:
        """Return a task; see `Tasks`."""
        found = await self._of_caller(task_id, caller)
        task = found.record.task
        if task.status == "working" and not found.claim.runner:
            return await self._waiting(found.record)
        if task.status != "input_required":
            return task
        with store_errors():
            answered = await self._shared.answers(task_id)
        questions = {key: question for key, question in task.questions.items() if key not in answered}
        return replace(task, status="input_required" if questions else "working", questions=questions)

    async def _waiting(self, record: TaskRecord) -> Task:
        """Return a task that waits for a process, and says so if there is none."""
        if time() - record.task.updated_at > _UNSERVED_SECONDS:
            with store_errors():
                if not await self._shared.is_served(record.tool):
                    return replace(record.task, status_message=_UNSERVED.format(tool=record.tool))
        return record.task

    async def update(self, task_id: str, caller: Caller | None, answers: Mapping[str, Json]) -> None:
        """Give a task answers; see `Tasks`."""
        task = (await self._of_caller(task_id, caller)).record.task
        with store_errors():
            found = await checked_answers(task.questions, answers, partial(self._shared.is_first_misfit, task_id))
            if found:
                await self._shared.answer(task_id, found)

    async def cancel(self, task_id: str, caller: Caller | None) -> None:
        """Cancel a task; see `Tasks`."""
        record = (await self._of_caller(task_id, caller)).record
        if record.task.is_final:
            return
        cancelled = cancelled_record(record)
        with store_errors():
            if await self._shared.cancel(cancelled):
                record_end(self._watched, cancelled, None)

    async def _of_caller(self, task_id: str, caller: Caller | None) -> SharedRecord:
        with store_errors():
            found = await self._shared.find(task_id)
            if found is None and not self.runner.is_settled:
                raise TaskStoreError("Redis has come back, and processes store their tasks again")
        if found is None or found.record.owner != owner_of(caller):
            raise unknown_task(task_id)
        return found

    # --- other processes ----------------------------------------------------------------------------------------------

    async def _receive_change(self, message: Mapping[str, Any]) -> None:
        if message.get("ended"):
            self.runner.delegated.discard(message["id"])
        self.listeners.notify(message["id"])

    async def _notify_all(self) -> None:
        self.listeners.notify_all()

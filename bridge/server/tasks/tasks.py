"""Tasks of one server: creation, execution, look-up, answers, cancellation, expiry.

    call ─┬─> result                                          the call ended before it became a task
          ╰─> CreateTaskResult ─> TaskStore ─> tasks/get      its work goes on without the request

MCP's extension ``io.modelcontextprotocol/tasks`` (SEP-2663). On asyncio; elsewhere, calls are answered directly.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from secrets import token_urlsafe
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CancelScope

from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import ProtocolError
from bridge.server.auth.access import EVERYTHING
from bridge.server.failures import reported
from bridge.server.limits.accounts import check_tasks_of_caller, current_account
from bridge.server.tasks.channel import TaskChannel
from bridge.server.tasks.listeners import TaskListeners
from bridge.server.tasks.restarts import may_run_again, read_rerun, rerun_request
from bridge.server.tasks.running_task import RunningTask, failed_record, outcome_unknown, without_room
from bridge.server.tasks.store import TaskRecord
from bridge.server.tasks.stored_tasks import StoredTasks, owner_of
from bridge.server.tasks.work import TaskCall, start_work
from bridge.telemetry import current
from bridge.tools.task import Task
from bridge.wire.extension import TASKS
from bridge.wire.tasks import created_task_to_wire, supports_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.work import TaskServer, Work
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Json

_T = TypeVar("_T")

_logger = logging.getLogger("bridge.server")

_ID_BYTES = 24
_CLEANUP_SECONDS = 1.5


class Tasks:
    """The tasks of one server."""

    def __init__(self, calls: TaskServer, options: TaskOptions) -> None:
        self.options = options
        self._calls = calls
        self._kept = StoredTasks(options, self._expire)
        self._running: dict[str, RunningTask] = {}
        self.listeners = TaskListeners()
        """Functions that are called after changes of tasks."""
        self._changes: set[asyncio.Task[Any]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._watched = None if (observer := current.observer()) is None else observer.tasks

    def takes(self, tool: Tool, capabilities: Mapping[str, Any], *, modern: bool) -> bool:
        """Return True if a call of a tool may become a task.

        Args:
            tool: The tool.
            capabilities: Capabilities of the client.
            modern: True for a client of version 2026-07-28.

        Raises:
            ProtocolError: The tool requires a client that supports tasks.
        """
        policy, options = tool.task, self.options
        if not options.max_tasks or (policy is None and options.after_seconds is None):
            return False
        if modern and supports_tasks(capabilities):
            return runs_on_asyncio()
        if policy is not None and policy.required:
            raise TASKS.missing(f"the tool {tool.name!r}")
        return False

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: InvocationContext, access: Access) -> Json:
        """Run a call that may become a task; return its result, or the created task, in MCP's JSON.

        Raises:
            ProtocolError: The call failed, or there is no room for a task.
            InputRequired: The call asked a question before it became a task.
        """
        self._calls.running.check_open(tool.name)
        call = TaskCall(tool, arguments, context, access, TaskChannel(context.client_capabilities, {}))
        request = context.connect(call.channel)
        call.channel.state = request.session
        if call.policy.starts_at_once or call.policy.required:
            check_tasks_of_caller()
        if not call.policy.starts_at_once:
            call.channel.connect(request)
            return await self._call_first(call)
        record = self._new_record(call)
        call.channel.take_answers_of(request)
        return await self._handed_out(self._changing(self._begin(record, call)), context.caller)

    async def _begin(self, record: TaskRecord, call: TaskCall) -> Json:
        """Store a task, and start its call; return it in MCP's JSON."""
        await self._kept.create(record)
        work = call.start(self._calls, self._watched)
        return created_task_to_wire(self._started(record, call.channel, work).record.task)

    async def _call_first(self, call: TaskCall) -> Json:
        """Run a call, which becomes a task when its function says so, or after a time."""
        channel, caller, is_required = call.channel, call.context.caller, call.policy.required
        if is_required:
            await self._check_room(call.context.account)
        work = call.start(self._calls, None)
        wanted = asyncio.get_running_loop().create_task(channel.wants_task.wait())
        creation: asyncio.Task[Json] | None = None
        try:
            await asyncio.wait([work, wanted], timeout=self.options.after_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not (work.done() or channel.has_ended):
                channel.begin_task()
                creation = self._changing(self._created(call, work))
                try:
                    return await self._handed_out(creation, caller)
                except ProtocolError:
                    if is_required:
                        raise
            channel.stay_request()
            await asyncio.wait([work])
            return work.result()[1]
        except asyncio.CancelledError as error:
            raise reported(call.tool.name, error, self._calls.running, call.context.request_id) from None
        finally:
            wanted.cancel()
            if creation is not None and not creation.done():  # the client has hung up
                creation.add_done_callback(lambda _: work.cancel() if channel.is_request else None)
            elif channel.is_request and not work.done():
                work.cancel()
                with CancelScope(shield=True):
                    await asyncio.wait([work])

    async def _created(self, call: TaskCall, work: Work) -> Json:
        """Store a task of a call that runs; return it in MCP's JSON."""
        check_tasks_of_caller()
        record = self._new_record(call)
        await self._create(record, call.tool)
        return created_task_to_wire(self._started(record, call.channel, work).record.task)

    async def _handed_out(self, creation: asyncio.Task[Json], caller: Caller | None) -> Json:
        """Wait for a task to be created; if the client hangs up before, nobody knows its id, and it is cancelled."""

        def cancel(created: asyncio.Task[Json]) -> None:
            if not created.cancelled() and created.exception() is None:
                self._changing(self.cancel(created.result()["taskId"], caller))

        try:
            return await _outcome(creation)  # what was stored has to be started
        except asyncio.CancelledError:
            creation.add_done_callback(cancel)
            raise

    async def _check_room(self, account: str) -> None:
        """Refuse a further task over a maximum."""
        self._kept.check_room(account)

    async def _create(self, record: TaskRecord, tool: Tool) -> None:  # noqa: ARG002 - for other stores
        """Store a task whose call runs."""
        await self._kept.create(record)

    def _changing(self, change: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a change of the store, which goes on if its client hangs up."""
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._end_change)
        return task

    def _end_change(self, change: asyncio.Task[Any]) -> None:
        self._changes.discard(change)
        if not change.cancelled():
            change.exception()  # which nobody else may await

    def _new_record(self, call: TaskCall) -> TaskRecord:
        now, policy, context = time(), call.policy, call.context
        task = Task(
            id=token_urlsafe(_ID_BYTES),
            created_at=now,
            updated_at=now,
            ttl_seconds=self.options.ttl_seconds if policy.ttl_seconds is None else policy.ttl_seconds,
            poll_interval_seconds=policy.poll_interval_seconds,
        )
        return TaskRecord(
            task=task,
            owner=owner_of(context.caller),
            account=context.account,
            tool=call.tool.name,
            team="" if context.caller is None else context.caller.team,
            request=self._stored_request(call),
        )

    def _stored_request(self, call: TaskCall) -> bytes:
        """Return what another process needs to run a call."""
        is_kept = self._kept.is_durable and may_run_again(call.tool)
        return rerun_request(call.arguments, call.context) if is_kept else b""

    def _started(self, record: TaskRecord, channel: TaskChannel, work: Work) -> RunningTask:
        """Let a stored task run without its request."""
        running = RunningTask(record, channel, work, self._kept, self._notify)
        self._running[record.task.id] = running
        self._calls.running.enter(work, record.account)
        account = current_account.get()  # its requests are answered while its tasks run
        if account is not None:
            account.begin_task()

        def begin_end(_: object) -> None:
            if account is not None:
                account.end_task()
            ending = asyncio.get_running_loop().create_task(self._end(running))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

        work.add_done_callback(begin_end)
        if self._watched is not None:
            owner = record.owner or None
            running.operation = self._watched.started(
                record.task.id, record.tool, owner, record.task.created_at, record.team
            )
        return running

    # --- the end of a task --------------------------------------------------------------------------------------------

    async def _end(self, running: RunningTask) -> None:
        """Store the outcome of a task whose call has ended."""
        record = running.ended
        try:
            record = await self._store_end(running, record)
        finally:
            self._running.pop(record.task.id, None)
            self._calls.running.leave(running.work)
            if self._watched is not None and running.operation is not None:
                self._watched.ended(running.operation, record.task.status, running.error_type(record))
            self._notify(running)

    async def _store_end(self, running: RunningTask, record: TaskRecord) -> TaskRecord:
        """Store the end of a task, or delete it if it has expired; return it as it was stored."""
        try:
            if self._is_ending and record.request and record.task.status == "failed" and not running.is_expired:
                return record  # the next process runs it again
            if not (running.is_expired or self._kept.has_room_for_outcome(record)):
                record = without_room(record)
            await running.save_outcome(record, partial(self._calls.running.leave, running.work))
            if running.is_expired:  # possibly while it was saved
                await self._kept.delete(record.task.id)
            return record
        finally:
            self._kept.end(record.account)

    @property
    def _is_ending(self) -> bool:
        return self._is_closing or self._calls.running.is_over

    def _expire(self, task_id: str) -> bool:
        """Cancel a task that has expired; return False if it does not run."""
        running = self._running.get(task_id)
        if running is None:
            return False
        running.expire()
        return True

    # --- requests for tasks -------------------------------------------------------------------------------------------

    async def get(self, task_id: str, caller: Caller | None) -> Task:
        """Return a task.

        Raises:
            ProtocolError: There is no such task of this caller, or the store cannot be read.
        """
        return (await self._found(task_id, caller)).task

    @property
    def running(self) -> tuple[TaskRecord, ...]:
        """The tasks that run in this process, or wait for answers."""
        return tuple(each.record for each in self._running.values())

    async def cancel_running(self, task_id: str) -> bool:
        """Cancel a task of any caller, for an operator; return False if it does not run in this process."""
        running = self._running.get(task_id)
        if running is None:
            return False
        await asyncio.shield(self._changing(running.cancel()))
        return True

    async def update(self, task_id: str, caller: Caller | None, answers: Mapping[str, Json]) -> None:
        """Give a task answers to open questions; others are ignored.

        Raises:
            ProtocolError: As by `get`, or an answer does not match its question.
        """
        await self._found(task_id, caller)
        if (running := self._running.get(task_id)) is not None:
            await _outcome(self._changing(running.answer(answers)))

    async def cancel(self, task_id: str, caller: Caller | None) -> None:
        """Cancel the call of a task, if it runs.

        Raises:
            ProtocolError: As by `get`, or the cancellation could not be stored.
        """
        await self._found(task_id, caller)
        if (running := self._running.get(task_id)) is not None:
            await _outcome(self._changing(running.cancel()))

    def _notify(self, running: RunningTask) -> None:
        self.listeners.notify(running.record.task.id)

    async def _found(self, task_id: str, caller: Caller | None) -> TaskRecord:
        running = self._running.get(task_id)
        return await self._kept.find(task_id, owner_of(caller), None if running is None else running.record)

    # --- the server ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store. Tasks that an earlier process did not end are run again if their tools are idempotent.

        Others fail with an unknown outcome.

        Raises:
            TaskStoreError: The store cannot be opened or written.
        """
        self._is_closing = False
        for record in await self._kept.open():
            tool, rerun = self._calls.tools.find(record.tool), read_rerun(record)
            if tool is None or rerun is None or not may_run_again(tool, record.runs):
                await self._kept.save(failed_record(record, outcome_unknown(record.tool)))
                self._kept.end(record.account)
                continue
            again, context = replace(record, runs=record.runs + 1), rerun.context
            await self._kept.save(again)
            channel = TaskChannel(context.client_capabilities, record.answers)
            channel.state = self._calls.session_states.of_rerun(context.caller)
            context.connect(channel)
            work = start_work(self._calls, record.tool, rerun.arguments, context, EVERYTHING, self._watched)
            self._started(again, channel, work)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Context in which the server has its tasks.

        Raises:
            TaskStoreError: The store cannot be opened or written.
        """
        await self.open()
        try:
            yield
        finally:
            await self.close()

    def drain(self) -> None:
        """Begin no task that another process can run."""

    async def close(self) -> None:
        """Cancel the running tasks, which fail with an unknown outcome, and close the store."""
        self._is_closing = True
        if self._changes:
            with CancelScope(shield=True):
                await asyncio.wait(self._changes, timeout=_CLEANUP_SECONDS)
        works = [running.work for running in self._running.values()]
        for work in works:
            work.cancel()
        with CancelScope(shield=True):
            if works:
                await asyncio.wait(works, timeout=_CLEANUP_SECONDS)
                await asyncio.sleep(0)  # the callbacks of works run
            if self._endings:
                await asyncio.wait(self._endings, timeout=_CLEANUP_SECONDS)
            for ending in self._endings:
                ending.cancel()
            if lost := len(self._running):
                _logger.error("the outcomes of %d tasks could not be stored", lost)
            await self._kept.close()


async def _outcome(change: asyncio.Task[_T]) -> _T:
    """Wait for a change, which goes on if its client hangs up; from Python 3.14 on, `asyncio.shield` logs its error."""
    await asyncio.wait([change])
    return change.result()

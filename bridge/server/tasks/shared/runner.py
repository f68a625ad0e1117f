"""Runner of tasks: what one process claims from Redis, and how their states get back there."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from bridge.server.auth.access import EVERYTHING
from bridge.server.tasks.channel import TaskChannel
from bridge.server.tasks.restarts import read_rerun
from bridge.server.tasks.running_task import failed_record, outcome_unknown
from bridge.server.tasks.shared.claimed_task import ClaimedTask
from bridge.server.tasks.shared.dead_processes import cancelled_record, take_over
from bridge.server.tasks.shared.delegated_tasks import DelegatedTasks
from bridge.server.tasks.shared.redis_store import MalformedTaskError
from bridge.server.tasks.store import TaskStoreError
from bridge.server.tasks.work import start_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.restarts import Rerun
    from bridge.server.tasks.running_task import RunningTask
    from bridge.server.tasks.shared.redis_store import Claim, RedisTaskStore, SharedRecord
    from bridge.server.tasks.store import TaskRecord
    from bridge.server.tasks.work import TaskServer, Work
    from bridge.telemetry.tasks import TaskTelemetry
    from bridge.types import Json

    Start = Callable[[TaskRecord, TaskChannel, Work], RunningTask]

_logger = logging.getLogger("bridge.server")

TICK_SECONDS = 1.0
"""Seconds between two looks for tasks of dead processes, and for what a lost message would have said."""
_RESYNC_SECONDS = 10.0
_PAUSED_SECONDS = 3 * TICK_SECONDS
_CLAIMED_AT_ONCE = 50
_WRITE_PAUSE_SECONDS = 0.05
_GOODBYE_SECONDS = 1.0
_RESTORING_SECONDS = 1.5 * TICK_SECONDS
_SETTLING_SECONDS = 5 * TICK_SECONDS


class TaskRunner:
    """Runs tasks of Redis in this process.

    Args:
        calls: Runs the calls.
        options: Options of the tasks.
        store: The Redis.
        start: Lets a stored task run.
        watched: Observes the work of tasks; None for no observation.
    """

    def __init__(
        self,
        calls: TaskServer,
        options: TaskOptions,
        store: RedisTaskStore,
        start: Start,
        watched: TaskTelemetry | None,
    ) -> None:
        self._calls = calls
        self._options = options
        self._store = store
        self._start_task = start
        self._watched = watched
        self._id = store.replica.id
        self._claimed: dict[str, ClaimedTask] = {}
        self.starting: set[str] = set()
        """Ids of tasks that are stored, or claimed, and run soon."""
        self._undone: set[str] = set()
        self._changed: dict[str, None] = {}
        self._skipped: set[str] = set()
        self.is_draining = False
        """True to claim no tasks."""
        self.delegated = DelegatedTasks(store, options.max_tasks, watched)
        """Tasks that this process has left to others."""
        self._has_lost = False
        self._returned_at = -math.inf
        self._must_resync = False
        self._resynced_at = monotonic()
        self._claiming = asyncio.Lock()  # no claim may be unknown to this process while it compares them
        self._woken, self._written, self._mailed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        store.replica.on_message("queued", self._receive_queued)
        store.replica.on_message("mail", self._receive_mail)
        store.replica.on_use.append(self._note_return)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which this process claims tasks."""
        self.is_draining = False
        async with anyio.create_task_group() as loops:
            for each in (self._keep_claiming, self._keep_writing, self._keep_delivering, self._keep_looking):
                loops.start_soon(each)
            try:
                yield
            finally:
                loops.cancel_scope.cancel()
                with anyio.move_on_after(_GOODBYE_SECONDS, shield=True), suppress(TaskStoreError):
                    if not await self._store.held_by(self._id):
                        await self._store.unregister(self._id)

    def wake(self) -> None:
        """Claim tasks, if there is room."""
        self._woken.set()

    # --- tasks of this process ----------------------------------------------------------------------------------------

    def hold(self, task_id: str, claim: Claim, seconds_left: float | None, *, may_run_again: bool) -> None:
        """Note the claim of a task that is about to run, and expires after a time; None for never."""
        self._claimed[task_id] = ClaimedTask(self._store, claim, seconds_left, may_run_again=may_run_again)

    def add(self, running: RunningTask) -> None:
        """Add a task that runs, whose claim is noted."""
        task_id = running.record.task.id
        self._claimed[task_id].run(running)
        self.starting.discard(task_id)

    @property
    def has_room(self) -> bool:
        """True if this process takes on tasks."""
        return len(self._claimed) < self._options.max_running and not self.is_draining

    def begin(self, record: TaskRecord, rerun: Rerun, answers: Mapping[str, Json]) -> None:
        """Start the call of a task that this process holds; ``answers`` are those to its questions so far."""
        channel = TaskChannel(rerun.context.client_capabilities, answers)
        channel.state = self._calls.session_states.of_rerun(rerun.context.caller)
        rerun.context.connect(channel)
        work = start_work(self._calls, record.tool, rerun.arguments, rerun.context, EVERYTHING, self._watched)
        self._start_task(record, channel, work)

    async def pass_on(self, record: TaskRecord) -> None:
        """Let a task that this process holds, and has not begun, wait for another."""
        task_id = record.task.id
        claim = self._claimed.pop(task_id).claim
        self.delegated.add(record)
        with self._noting_failures():
            await self._store.release(record, claim, is_counted=False, has_begun=False)
        self.starting.discard(task_id)  # `_resync` releases it if that failed

    def undo(self, task_id: str) -> None:
        """Delete a task whose creation failed, and which Redis may have stored."""
        self._undone.add(task_id)
        self.starting.discard(task_id)

    def put(self, running: RunningTask) -> None:
        """Store a changed state soon."""
        self._changed[running.record.task.id] = None
        self._written.set()

    async def end(
        self, running: RunningTask, record: TaskRecord, *, is_ending: bool, failed: Callable[[], None]
    ) -> TaskRecord:
        """Store the end of a task; see `ClaimedTask.end`."""
        task_id = record.task.id
        held = self._claimed[task_id]
        try:
            return await held.end(running, record, self._options.max_bytes, is_ending=is_ending, failed=failed)
        finally:
            del self._claimed[task_id]
            self._changed.pop(task_id, None)
            self.wake()

    # --- claims -------------------------------------------------------------------------------------------------------

    async def _receive_queued(self, message: Mapping[str, Any]) -> None:  # noqa: ARG002 - a claim finds it
        self._woken.set()

    async def _keep_claiming(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            if not self.has_room:
                continue
            room = min(self._options.max_running - len(self._claimed), _CLAIMED_AT_ONCE)
            with self._noting_failures():
                async with self._claiming:
                    claimed = await self._store.claim(self._id, room, self._skipped)
                    self.starting.update(claimed)
                if len(claimed) == room:
                    self._woken.set()
                async with anyio.create_task_group() as starting:
                    for task_id in claimed:
                        starting.start_soon(self._start_claimed, task_id)

    async def _start_claimed(self, task_id: str) -> None:
        try:
            with self._noting_failures():
                found = await self._store.find_with_request(task_id)
                if found is not None and found.claim.runner == self._id:
                    await self._start(task_id, found)
        finally:
            self.starting.discard(task_id)

    async def _start(self, task_id: str, found: SharedRecord) -> None:
        record, claim = found.record, found.claim
        rerun = read_rerun(record)
        if found.is_cancelled:
            await self._store.finish(cancelled_record(record), claim, None)
        elif self._calls.tools.find(record.tool) is None or self.is_draining:
            self._skipped.add(record.tool)
            await self._store.release(record, claim, is_counted=False, has_begun=False)
        elif rerun is None:
            await self._store.finish(failed_record(record, outcome_unknown(record.tool)), claim, None)
        else:
            earlier = await self._store.answers(task_id)  # of a run that has ended with its process
            self.hold(task_id, claim, found.seconds_left, may_run_again=found.may_run_again)
            with nullcontext() if self._watched is None else self._watched.continued(rerun.trace):
                self.begin(record, rerun, {**record.answers, **earlier})

    # --- states, answers and cancellations ----------------------------------------------------------------------------

    async def _keep_writing(self) -> None:
        while True:
            await self._written.wait()
            self._written.clear()
            for task_id in tuple(self._changed):
                held = self._claimed.get(task_id)
                self._changed.pop(task_id, None)  # it may have ended while another was stored
                if held is None or held.running is None:
                    continue
                try:
                    await held.put(held.running)
                except TaskStoreError:
                    self._changed[task_id] = None
                    self._must_resync = True
                    break  # a tick goes on
            await anyio.sleep(_WRITE_PAUSE_SECONDS)

    async def _receive_mail(self, message: Mapping[str, Any]) -> None:  # noqa: ARG002 - the mail is on Redis
        self._mailed.set()

    async def _keep_delivering(self) -> None:
        while True:
            await self._mailed.wait()
            self._mailed.clear()
            with self._noting_failures():
                for task_id in await self._store.mail(self._id):
                    with self._noting_failures():
                        await self._deliver(task_id)

    async def _deliver(self, task_id: str) -> None:
        """Give a task its answers, or cancel it."""
        found, held = await self._store.find(task_id), self._claimed.get(task_id)
        if found is None or held is None or held.running is None or found.claim != held.claim:
            return
        if found.is_cancelled:
            held.running.interrupt()
        held.running.channel.remember(await self._store.answers(task_id))

    # --- lost messages, and dead processes ----------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        looked_at = monotonic()
        while True:
            with self._noting_failures():
                await self._look()
            before, looked_at = looked_at, monotonic()
            if looked_at - before > _PAUSED_SECONDS:
                self._must_resync = True
            await anyio.sleep(TICK_SECONDS)

    async def _look(self) -> None:
        for task_id in tuple(self._undone):
            await self._store.forget(task_id, self._id)
            self._undone.discard(task_id)
        found = await self._store.register(self._id)
        if found.is_unknown and (self._claimed or self.delegated):
            self._has_lost = self._must_resync = True
            await self._note_return()
        if self._has_lost and monotonic() - self._returned_at > _RESTORING_SECONDS:
            await self.delegated.fail_lost()
            self._has_lost = False
        if self._watched is not None:
            self._watched.queue = found.waiting, found.oldest
        served = [each for each in found.tools if self._calls.tools.find(each) is not None]
        if served and self._options.max_running and not self.is_draining:
            await self._store.serve(served)
        if self._must_resync or monotonic() - self._resynced_at > _RESYNC_SECONDS:
            await self._resync()
        self._skipped.clear()
        for event in (self._woken, self._written, self._mailed):
            event.set()
        for runner in found.runners:
            if runner != self._id and await self._store.has_ended(runner):
                await take_over(self._store, runner, self._watched)

    async def _note_return(self) -> None:
        self._returned_at = monotonic()

    @property
    def is_settled(self) -> bool:
        """False while Redis, which has come back, may lack tasks that their processes have not stored again."""
        return monotonic() - self._returned_at > _SETTLING_SECONDS

    async def _resync(self) -> None:
        """Compare the tasks that run here with those that Redis says run here."""
        self._must_resync = False
        async with self._claiming:
            noted = await self._store.held_by(self._id)
        for task_id, held in tuple(self._claimed.items()):
            if held.running is None or held.running.work.done() or held.running.is_expired:
                continue
            if task_id not in noted:
                await held.restore(held.running)
            with self._noting_failures():
                await self._deliver(task_id)
        for task_id in noted - self._claimed.keys() - self.starting - self._undone:
            try:
                found = await self._store.find(task_id)
            except MalformedTaskError:
                continue
            if found is None:
                await self._store.forget(task_id, self._id)
            elif found.claim.runner == self._id and task_id not in self._claimed:  # claimed, but the reply was lost
                await self._store.release(found.record, found.claim, is_counted=False, has_begun=False)
        self._resynced_at = monotonic()

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except MalformedTaskError as error:
            _logger.error("%s; it is left out", error)  # noqa: TRY400 - it says why
        except TaskStoreError:  # the replica has logged it
            self._must_resync = True
        except Exception:
            _logger.exception("a task on Redis cannot be used")
            self._must_resync = True

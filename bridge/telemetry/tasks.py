"""Tasks under observation: how many run and wait, their durations and outcomes, their audit lines and spans."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from time import time
from typing import TYPE_CHECKING

from bridge.telemetry.conventions import CANCELLED, TARGETS, TASK_DURATION, TASK_STATUS, TASKS, TOOL_ERROR, TOOLS_CALL
from bridge.telemetry.operations import classify_error
from bridge.telemetry.records import CallDetails, EndedCall, call_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from bridge.telemetry.operations import Recorder

_TOOL = TARGETS[TOOLS_CALL]
_BUCKETS_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_MAX_ID_CHARS = 8  # the whole id is a secret, by which the task can be read


class TaskTelemetry:
    """Observes the tasks of this process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: dict[TaskOperation, None] = {}
        self.queue: tuple[int, float | None] = 0, None
        """Number of tasks that wait on Redis for a process, and the time at which the oldest was created."""
        instruments = recorder.instruments
        self.duration = instruments.histogram(
            TASK_DURATION, "s", "Duration of a task, from its creation to its end.", _BUCKETS_SECONDS
        )
        instruments.observe(f"{TASKS}.running", "Tasks that run.", lambda: self._count(is_waiting=False))
        instruments.observe(f"{TASKS}.waiting", "Tasks that wait for answers.", lambda: self._count(is_waiting=True))
        instruments.observe(f"{TASKS}.queued", "Tasks on Redis that no process has begun.", lambda: self.queue[0])
        instruments.observe(f"{TASKS}.queued.oldest", "Seconds since the creation of the oldest of these.", self._wait)
        instruments.observe(f"{TASKS}.oldest", "Seconds since the creation of the oldest running task.", self._age)

    def started(self, task_id: str, tool: str, caller: str | None, created_at: float, team: str = "") -> TaskOperation:
        """Observe a task, in the request that creates it, or at its end if it ran in no living process.

        Args:
            task_id: Its id.
            tool: Name of the called tool.
            caller: Name of the caller; None without authentication.
            created_at: Time of its creation, in seconds since 1970.
            team: The caller's team; empty for none.
        """
        tracer = self._recorder.tracer
        trace_id = None if tracer is None else tracer.current_trace_id()
        operation = TaskOperation(task_id, tool, caller, created_at, trace_id, team)
        self._running[operation] = None
        return operation

    def ended(self, operation: TaskOperation, status: str, error_type: str | None) -> None:
        """Record the end of a task, with its last state, and the type of its error; None for a success."""
        del self._running[operation]
        seconds = max(0.0, time() - operation.created_at)
        self.duration.record(seconds, {_TOOL: operation.tool, TASK_STATUS: status})
        details = CallDetails(operation.tool, None, operation.caller, None, "{}", "task", team=operation.team)
        call = EndedCall(
            details, operation.id[:_MAX_ID_CHARS], operation.created_at, seconds, error_type, operation.trace_id
        )
        for sink in self._recorder.sinks:
            sink.put([call_record(call)])

    def trace_to_carry(self) -> dict[str, str]:
        """Return the trace context of the current request, for the process that runs its task."""
        carried: dict[str, str] = {}
        if (tracer := self._recorder.tracer) is not None and tracer.current_trace_id() is not None:
            tracer.carry(carried)
        return carried

    def continued(self, trace: Mapping[str, str]) -> AbstractContextManager[None]:
        """Context in which the trace of another process goes on."""
        tracer = self._recorder.tracer
        return nullcontext() if tracer is None or not trace else tracer.continued(trace)

    @contextmanager
    def work(self, tool: str) -> Iterator[None]:
        """Context in which the call of a task runs: a span within that of the request, if that is traced."""
        tracer = self._recorder.tracer
        if tracer is None or tracer.current_trace_id() is None:
            yield
            return
        span = tracer.start(f"task {tool}", {_TOOL: tool}, is_client=False)
        try:
            yield
        except BaseException as error:
            span.end(*classify_error(error), None)
            raise
        span.end(None, None, None)

    def _count(self, *, is_waiting: bool) -> int:
        return sum(each.is_waiting is is_waiting for each in tuple(self._running))

    def _wait(self) -> int:
        _, oldest = self.queue
        return 0 if oldest is None else max(0, int(time() - oldest))

    def _age(self) -> int:
        return max((int(time() - each.created_at) for each in tuple(self._running)), default=0)


class TaskOperation:
    """A running task under observation."""

    __slots__ = ("caller", "created_at", "id", "is_waiting", "team", "tool", "trace_id")

    def __init__(
        self, task_id: str, tool: str, caller: str | None, created_at: float, trace_id: str | None, team: str
    ) -> None:
        self.id = task_id
        self.team = team
        self.tool = tool
        self.caller = caller
        self.created_at = created_at
        self.trace_id = trace_id
        self.is_waiting = False
        """True while it waits for answers to its questions."""


def error_type_of(status: str, code: int | None, *, is_error: bool) -> str | None:
    """Return the error type of a task's last state; None for a success.

    Args:
        status: The state.
        code: JSON-RPC error code of a task that has failed.
        is_error: True if the result is an error of the tool.
    """
    if status == "completed":
        return TOOL_ERROR if is_error else None
    return CANCELLED if status == "cancelled" else str(code)

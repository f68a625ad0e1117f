"""``tasks/…``: requests for tasks (extension ``io.modelcontextprotocol/tasks``, SEP-2663)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INVALID_PARAMS
from bridge.server.calls import excess_message
from bridge.server.channel import context_of
from bridge.server.methods.extensions import ExtensionMethod
from bridge.server.methods.method import MODERN
from bridge.tools.tool import ToolExecutionResult
from bridge.wire.extension import TASKS
from bridge.wire.received import write_result
from bridge.wire.tasks import written_task
from bridge.wire.tools import result_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task
    from bridge.types import Json

_TASK_ID = "taskId"
_DONE: Json = {"resultType": "complete"}


class _TaskMethod(ExtensionMethod):
    """Base of the methods for one task."""

    extension = TASKS
    eras = MODERN
    header_param = _TASK_ID

    def plan(self, exchange: ServedExchange) -> None:
        """Check that server and client have tasks, and that the request names one."""
        super().plan(exchange)
        if not isinstance(exchange.params.get(_TASK_ID), str):
            raise ProtocolError(INVALID_PARAMS, f"{_TASK_ID!r} must be a string")

    async def run(self, exchange: ServedExchange) -> bytes:
        """Answer the request."""
        task = await self._answer(exchange.params[_TASK_ID], context_of(exchange), exchange.params)
        return exchange.write(dict(_DONE) if task is None else written_task(task))

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> Task | None:
        """Return the task to answer with; None for an empty result."""
        raise NotImplementedError


class TasksGet(_TaskMethod):
    """The state of a task, with its open questions or its outcome."""

    name = "tasks/get"

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> Task:  # noqa: ARG002 - it has no further parameters
        if (forwarded := self._core.forwarded(task_id)) is not None:
            task = await forwarded.get(task_id, context)
            return await fitted_task(self._core, task, forwarded.tool_of(task_id, context), context)
        return await self._core.tasks.get(task_id, context.caller)


async def fitted_task(core: ServerCore, task: Task, name: str, context: InvocationContext) -> Task:
    """Return a task of another server as a client gets it: with a result within the limits, whose bytes are counted.

    Args:
        core: The server.
        task: The task.
        name: Name of its tool.
        context: Context of the request.
    """
    if task.status != "completed":
        return task
    tool = core.tools.find(name)
    if core.kept is not None and tool is not None:
        task = await core.kept.fitted_task(tool, task, context)
    max_bytes = core.max_result_bytes(name)
    if max_bytes is not None and len(task.outcome) > max_bytes:
        excess = ToolExecutionResult.error(excess_message(name, len(task.outcome), max_bytes))
        task = replace(task, outcome=write_result(result_to_wire(excess)))
    core.counted(task.outcome)
    return task


class TasksUpdate(_TaskMethod):
    """Answers to questions of a task."""

    name = "tasks/update"

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> None:
        answers = params.get("inputResponses")
        if not isinstance(answers, dict) or not all(isinstance(each, dict) for each in answers.values()):
            raise ProtocolError(INVALID_PARAMS, "'inputResponses' must be an object of objects, the answers by key")
        if (forwarded := self._core.forwarded(task_id)) is not None:
            await forwarded.update(task_id, context, answers)
        else:
            await self._core.tasks.update(task_id, context.caller, answers)


class TasksCancel(_TaskMethod):
    """The end of a task that its client no longer wants."""

    name = "tasks/cancel"

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> None:  # noqa: ARG002 - it has no further parameters
        if (forwarded := self._core.forwarded(task_id)) is not None:
            await forwarded.cancel(task_id, context)
        else:
            await self._core.tasks.cancel(task_id, context.caller)

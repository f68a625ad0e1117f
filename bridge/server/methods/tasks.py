"""``tasks/get``, ``tasks/update`` and ``tasks/cancel`` (extension ``io.modelcontextprotocol/tasks``, SEP-2663)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import CAPABILITIES_KEY, HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.server.methods.method import Method
from bridge.tools.context import InvocationContext
from bridge.wire.tasks import missing_tasks_extension, supports_tasks, task_to_wire, written_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp_types import RequestParams

    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.tools.task import Task
    from bridge.types import Json

_Written = TypeVar("_Written")

_TASK_ID = "taskId"
_NAME_HEADER = "mcp-name"
_DONE: Json = {"resultType": "complete"}


class _TaskMethod(Method):
    """Base of the methods for one task; plain if the client supports tasks."""

    planned_in = frozenset({"modern"})
    header_param = _TASK_ID

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        """Return the request if its client supports tasks."""
        is_plain = type(request.params.get(_TASK_ID)) is str and supports_tasks(request.capabilities)
        return request if is_plain and self._core.has_tasks else None

    async def run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], _Written]
    ) -> _Written:
        """Answer the request."""
        task = await self._answer(request.params[_TASK_ID], context, request.params)
        return write(dict(_DONE) if task is None else written_task(task))

    def params_type(self) -> type[RequestParams]:
        """Return the type of the parameters, which `handle` reads itself."""
        from mcp_types import RequestParams

        return RequestParams

    async def handle(self, request: HandlerRequest, params: RequestParams) -> Json:  # noqa: ARG002 - see `params_type`
        """Answer the request."""
        from mcp.shared.inbound import decode_header_value

        from bridge.server.auth.identity import caller_of_request

        sdk = request.sdk
        given = sdk.params or {}
        if not (request.modern and self._core.has_tasks):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", self.name)
        if not supports_tasks((given.get("_meta") or {}).get(CAPABILITIES_KEY)):
            raise missing_tasks_extension(f"the method {self.name!r}")
        task_id = given.get(_TASK_ID)
        if not isinstance(task_id, str):
            raise ProtocolError(INVALID_PARAMS, f"{_TASK_ID!r} must be a string")
        name = None if sdk.request is None else sdk.request.headers.get(_NAME_HEADER)
        if name is not None and decode_header_value(name) != task_id:  # FastMCP 4.1 sends none
            raise ProtocolError(HEADER_MISMATCH, f"the header Mcp-Name must be the {_TASK_ID!r} of the request")
        headers = {} if sdk.request is None else sdk.request.headers
        task = await self._answer(task_id, InvocationContext(caller=caller_of_request(), headers=headers), given)
        return dict(_DONE) if task is None else task_to_wire(task)

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> Task | None:
        """Return the task to answer with; None for an empty result."""
        raise NotImplementedError


class TasksGet(_TaskMethod):
    """The state of a task, with its open questions or its outcome."""

    name = "tasks/get"

    async def _answer(self, task_id: str, context: InvocationContext, params: Mapping[str, Any]) -> Task:  # noqa: ARG002 - it has no further parameters
        if (forwarded := self._core.forwarded(task_id)) is not None:
            return await forwarded.get(task_id, context)
        return await self._core.tasks.get(task_id, context.caller)


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

"""``tools/list`` and ``tools/call`` (MCP 2025-11-25 and 2026-07-28, "Tools")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.server.auth.access import EVERYTHING
from bridge.server.core import write_result
from bridge.server.methods.method import ERAS, Target, Written
from bridge.server.methods.pages import PagedList
from bridge.server.methods.plain_calls import PlainCalls
from bridge.server.protocol import ProtocolError
from bridge.wire.tools import forwarded_meta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp_types import CallToolRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.server.tool_list import ToolList
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import Tool
    from bridge.types import Json


class ToolsList(PagedList):
    """The list of tools."""

    name = "tools/list"

    def listing(self, access: Access = EVERYTHING) -> ToolList:
        """Return the tools."""
        return self._core.views.of(access).catalog


class ToolsCall(PlainCalls):
    """A call of a tool; plain if the tool is known."""

    name = "tools/call"
    planned_in = ERAS
    target_param = "name"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._may_all_be_tasks = core.task_options.after_seconds is not None

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        """Return the request if it calls a known tool."""
        params, access = request.params, request.access
        name, arguments = params.get("name"), params.get("arguments")
        # Other parameters need the SDK: a task, answers to questions, the state of an earlier round.
        members = 1 + ("arguments" in params) + ("_meta" in params)
        if not (len(params) == members and type(name) is str and (arguments is None or type(arguments) is dict)):
            return None
        core = self._core
        views = core.views
        listed = (views.whole if access.tools is None else views.of(access)).catalog.find(name)
        # An unknown name is a JSON-RPC error; a parameter that is mirrored in a header has to be compared with it;
        # over HTTP, a missing scope has its own status.
        if listed is None or listed.header_schema is not None or (access is not EVERYTHING and access.missing(name)):
            return None
        if (listed.tool.task is not None or self._may_all_be_tasks) and not self._plan_task(request, listed.tool):
            return None
        if listed.is_plain and core.is_plain and request.found is None:
            request.tool = listed.tool
        request.arguments = arguments or {}
        request.takes_context, request.may_talk = listed.takes_context, listed.may_talk
        return request

    def _plan_task(self, request: PlainRequest, tool: Tool) -> bool:
        """Plan a call that may become a task; return False for a client that the SDK has to refuse."""
        try:
            is_taken = self._core.tasks.takes(tool, request.capabilities, modern=request.modern)
        except ProtocolError:
            return False
        request.found = tool if is_taken else None
        return True

    def _run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Call the tool."""
        params = request.params
        if request.found is not None:
            return self._call_as_task(request, context, write)
        return self._core.call(
            params["name"],
            request.arguments,
            context,
            write,
            modern=request.modern,
            access=request.access,
        )

    async def _call_as_task(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Written:
        """Call the tool; the result may be a task."""
        context.meta = forwarded_meta(request.params.get("_meta"))
        return write(await self._core.tasks.call(request.found, request.arguments, context, request.access))

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.policy

    def _write(self, request: PlainRequest, result: ToolExecutionResult, write: Callable[[Json], Written]) -> Written:
        assert request.tool is not None, "it was planned"
        return write_result(request.tool.name, result, write, None, modern=request.modern)

    def params_type(self) -> type[CallToolRequestParams]:
        """Return the type of the parameters: a name and arguments."""
        from mcp_types import CallToolRequestParams

        return CallToolRequestParams

    async def handle(self, request: HandlerRequest, params: CallToolRequestParams) -> Json:
        """Call the tool, which may ask its client through the context."""
        core, access = self._core, request.access
        with request.running() as context:
            tool = core.views.of(access).tools.find(params.name)
            if (
                tool is not None
                and (tool.task is not None or self._may_all_be_tasks)
                and not access.missing(params.name)
                and core.tasks.takes(tool, context.client_capabilities, modern=request.modern)
            ):
                return await core.tasks.call(tool, params.arguments or {}, context, access)
            return await core.call(
                params.name,
                params.arguments or {},
                context,
                _checked,
                modern=request.modern,
                access=access,
            )

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the tool."""
        requested = params.get("name")
        if not isinstance(requested, str):
            return Target(None, None, None)
        tool = self._core.views.of(access).tools.find(requested)
        return Target(requested, None, None) if tool is None else Target(requested, tool.name, tool.server)


def _checked(result: Json) -> Json:
    """Check that a result can be written as JSON, while the call can still fail."""
    to_json(result)
    return result

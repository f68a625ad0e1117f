"""``tools/list`` and ``tools/call`` (MCP 2025-11-25 and 2026-07-28, "Tools")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import LOG_LEVEL_KEY
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import write_result
from bridge.server.methods.method import ERAS, Target, Written
from bridge.server.methods.pages import PagedList
from bridge.server.methods.plain_calls import PlainCalls
from bridge.telemetry.conventions import TRACE_KEYS
from bridge.tools.calls import ToolExecutionRequest
from bridge.wire.tools import forwarded_meta

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp_types import CallToolRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.methods.method import HandlerRequest, PlainRequest
    from bridge.server.methods.passing import BegunCall
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
        if core.is_plain and request.found is None:
            if listed.is_plain:
                request.tool = listed.tool
            elif listed.passing is not None:
                request.passing = listed
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

    def pass_on(self, request: PlainRequest, receive: Callable[[bytes | None], None]) -> BegunCall | None:
        """Send the call to its server at once; see `bridge.server.methods.passing`."""
        listed, meta, core = request.passing, request.params["_meta"], self._core
        if (
            listed is None
            or listed.passing is None
            or LOG_LEVEL_KEY in meta
            or not TRACE_KEYS.isdisjoint(meta)
            or core.memory_id_of is not None
            or not self._running.has_room(core.plain_places)
        ):
            return None
        name = listed.tool.name

        def received(result: ToolExecutionResult | None) -> None:
            receive(None if result is None else write_result(name, result, request.write, None, modern=True))

        return listed.passing.begin(request.arguments, request.capabilities, received)

    async def _continue(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Written:
        """Continue a call that was passed on."""
        assert request.passing is not None
        assert request.passing.passing is not None
        executor, request.tool = request.passing.passing, request.passing.tool
        begun, request.begun = request.begun, None
        call = ToolExecutionRequest(request.tool.name, request.arguments)
        try:
            result = await executor.execute(call, context, begun)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(request, raised, write, context)
        return self._write(request, result, write)

    def _run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Call the tool."""
        params = request.params
        if request.begun is not None:
            return self._continue(request, context, write)
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

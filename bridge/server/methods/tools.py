"""``tools/list`` and ``tools/call`` (MCP 2025-11-25 and 2026-07-28, "Tools")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import ENVELOPE_KEYS
from bridge.protocol.param_headers import check_param_headers
from bridge.protocol.versions import LOG_LEVEL_KEY
from bridge.server.auth.access import EVERYTHING
from bridge.server.core import write_result
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import Target, Written, optional_object, required_text
from bridge.server.methods.pages import PagedList
from bridge.tools.calls import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.direct_calls import DirectCall
    from bridge.server.exchange import ServedExchange
    from bridge.server.tool_list import ToolList
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.types import Json


class ToolsList(PagedList):
    """The list of tools."""

    name = "tools/list"

    def listing(self, access: Access = EVERYTHING) -> ToolList:
        """Return the tools."""
        return self._core.views.of(access).catalog


class ToolsCall(FunctionMethod):
    """A call of a tool."""

    name = "tools/call"
    target_param = "name"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._may_all_be_tasks = core.task_options.after_seconds is not None

    def plan(self, exchange: ServedExchange) -> None:
        """Read the name and the arguments, and find out what the tool needs."""
        params, access = exchange.params, exchange.access
        name = params.get("name")
        if type(name) is not str:
            name = required_text(params, "name")
        arguments = params.get("arguments")
        exchange.arguments = arguments if type(arguments) is dict else optional_object(params, "arguments")
        core, views = self._core, self._core.views
        listed = (views.whole if access.tools is None else views.of(access)).catalog.find(name)
        if listed is None or (access is not EVERYTHING and access.missing(name)):
            return  # refused when it is run
        if listed.headers and exchange.modern and exchange.origin.headers is not None:
            check_param_headers(listed.headers, exchange.arguments, exchange.origin.headers)
        tool = listed.tool
        if (tool.task is not None or self._may_all_be_tasks) and core.tasks.takes(
            tool, exchange.capabilities, modern=exchange.modern
        ):
            exchange.found = tool
        elif core.is_plain:
            if listed.is_plain:
                exchange.tool, exchange.takes_context = tool, listed.takes_context
            elif listed.direct is not None:
                exchange.direct = listed

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> DirectCall | None:
        """Send the call to its server in this turn; see `bridge.server.direct_calls`."""
        listed, meta, core = exchange.direct, exchange.meta, self._core
        if (
            listed is None
            or listed.direct is None
            or not exchange.modern
            or exchange.round.number
            or exchange.round.answers
            or LOG_LEVEL_KEY in meta
            or not meta.keys() <= ENVELOPE_KEYS
            or core.memory_id_of is not None
            or not self._running.has_room(core.plain_places)
        ):
            return None
        name = listed.tool.name

        def received(result: ToolExecutionResult | None) -> None:
            receive(None if result is None else write_result(name, result, exchange.write, None, modern=True))

        return listed.direct.begin(exchange.arguments, exchange.capabilities, received)

    async def _continue(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Written:
        """Continue a call that was sent at once."""
        assert exchange.direct is not None
        assert exchange.direct.direct is not None
        executor, exchange.tool = exchange.direct.direct, exchange.direct.tool
        sent, exchange.sent = exchange.sent, None
        call = ToolExecutionRequest(exchange.tool.name, exchange.arguments)
        try:
            result = await executor.execute(call, context, sent)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(exchange, raised, write, context)
        return self._write(exchange, result, write)

    def _run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Call the tool."""
        if exchange.sent is not None:
            return self._continue(exchange, context, write)
        if exchange.found is not None:
            return self._call_as_task(exchange, context, write)
        return self._core.call(
            exchange.params["name"],
            exchange.arguments,
            context,
            write,
            modern=exchange.modern,
            access=exchange.access,
        )

    async def _call_as_task(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Written:
        """Call the tool; the result may be a task."""
        return write(await self._core.tasks.call(exchange.found, exchange.arguments, context, exchange.access))

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.policy

    def _write(
        self, exchange: ServedExchange, result: ToolExecutionResult, write: Callable[[Json], Written]
    ) -> Written:
        assert exchange.tool is not None, "it was planned"
        return write_result(exchange.tool.name, result, write, None, modern=exchange.modern)

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the tool."""
        requested = self.target_in(params)
        if requested is None:
            return Target(None, None, None)
        tool = self._core.views.of(access).tools.find(requested)
        return Target(requested, None, None) if tool is None else Target(requested, tool.name, tool.server)

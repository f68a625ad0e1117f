"""``tools/list`` and ``tools/call`` (MCP 2025-11-25 and 2026-07-28, "Tools")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import ENVELOPE_KEYS
from bridge.protocol.param_headers import check_param_headers
from bridge.protocol.versions import LOG_LEVEL_KEY
from bridge.server.auth.access import EVERYTHING
from bridge.server.calls import write_result
from bridge.server.channel import context_of
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import Target, optional_object, required_text
from bridge.server.methods.pages import PagedList
from bridge.server.results.costs import hidden_tokens
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.spill.usage import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.server.forwarded import ForwardedCall
    from bridge.server.lists.lists import Lists
    from bridge.server.lists.tools import ListedTool, ToolList
    from bridge.tools.caller import Caller
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.execution import ExecutionPolicy

_SEARCH_TOOL = "search_tools"


class ToolsList(PagedList):
    """The list of tools."""

    name = "tools/list"
    hook = "list_tools"

    def listing(self, lists: Lists, access: Access) -> ToolList:
        """Return the tools."""
        return lists.tools.of(access).listed

    def _shown(self, lists: Lists, exchange: ServedExchange) -> ToolList:
        view = lists.tools.of(exchange.access)
        if lists.tools.search is not None and "cursor" not in exchange.params:
            self._core.savings.add("search", _SEARCH_TOOL, hidden_tokens(view))
        return view.listed


class ToolsCall(FunctionMethod):
    """A call of a tool."""

    name = "tools/call"
    hook = "call_tool"
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
        core, listed = self._core, self._listed(exchange, name)
        if listed is None or (access is not EVERYTHING and access.missing(name)):
            return  # refused when it is run, after the caller's tools are loaded
        if listed.headers and exchange.modern and not exchange.is_resolved and exchange.origin.headers is not None:
            check_param_headers(listed.headers, exchange.arguments, exchange.origin.headers)
        tool = listed.tool
        if core.kept is not None and not exchange.is_of_script:
            exchange.max_chars, exchange.count = listed.max_chars, listed.count
        if (tool.task is not None or self._may_all_be_tasks) and core.tasks.takes(
            tool, exchange.capabilities, modern=exchange.modern
        ):
            exchange.found = tool
        elif self._runs_directly:
            if listed.runs_directly:
                exchange.tool, exchange.takes_context = tool, listed.takes_context
            elif listed.direct is not None:
                exchange.direct = listed

    def _listed(self, exchange: ServedExchange, name: str) -> ListedTool | None:
        """Return the tool that the caller names, in the version that it wants; None if it is not known now."""
        core, access = self._core, exchange.access
        lists = core.lists if core.features.caller_features is None else core.lists_for(exchange.origin.caller)
        if lists is None:
            return None
        catalog = (lists.tools.whole if access.sees_all else lists.tools.of(access)).catalog
        listed = catalog.find(name)
        if listed is not None and listed.has_versions:
            other = catalog.in_version(listed, exchange.meta)
            if other is not listed:
                listed, exchange.older = other, other.tool
        return listed

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> ForwardedCall | None:
        """Send the call to its server in this turn; see `bridge.server.forwarded`."""
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
            or core.call_limits is not None
            or not self._running.has_room(core.max_direct_calls)
        ):
            return None
        name = listed.tool.name

        def received(result: ToolExecutionResult | None) -> None:
            written = None
            if result is not None:
                written = write_result(name, result, exchange.write, None, exchange.request_id, modern=True)
            if written is not None and exchange.count is not None:
                exchange.count(len(written))
            receive(written)

        caller = exchange.origin.caller
        return listed.direct.begin(exchange.arguments, exchange.capabilities, caller, received, exchange.max_chars)

    async def _continue(self, exchange: ServedExchange) -> bytes:
        """Continue a call that was sent at once."""
        assert exchange.direct is not None
        assert exchange.direct.direct is not None
        executor, exchange.tool = exchange.direct.direct, exchange.direct.tool
        sent, exchange.sent = exchange.sent, None
        call = ToolExecutionRequest(exchange.tool.name, exchange.arguments)
        try:
            result = await executor.execute(call, context_of(exchange), sent)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(exchange, raised)
        return self._write(exchange, result) if exchange.max_chars == UNLIMITED else await self._fit(exchange, result)

    def _run(self, exchange: ServedExchange) -> Awaitable[bytes]:
        """Call the tool."""
        if exchange.sent is not None:
            return self._continue(exchange)
        if exchange.found is not None:
            return self._call_as_task(exchange)
        return self._core.call(
            exchange.params["name"],
            exchange.arguments,
            context_of(exchange),
            exchange.write,
            modern=exchange.modern,
            access=exchange.access,
            older=exchange.older,
            is_kept_whole=exchange.is_of_script,
        )

    async def _call_as_task(self, exchange: ServedExchange) -> bytes:
        """Call the tool; the result may be a task."""
        return exchange.write(
            await self._core.tasks.call(exchange.found, exchange.arguments, context_of(exchange), exchange.access)
        )

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.policy

    def _name(self, exchange: ServedExchange) -> str:
        name: str = exchange.params["name"]
        return name

    def _write(self, exchange: ServedExchange, result: ToolExecutionResult) -> bytes:
        assert exchange.tool is not None, "it was planned"
        name, request_id = exchange.tool.name, exchange.request_id
        return write_result(name, result, exchange.write, None, request_id, modern=exchange.modern)

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING, caller: Caller | None = None) -> Target:
        """Return the tool."""
        views = (self._core.lists_for(caller) or self._core.lists).tools
        tools = views.of(access).tools
        if views.search is not None:
            params = views.search.resolved(dict(params), tools)
        requested = self.target_in(params)
        tool = None if requested is None else tools.find(requested)
        if tool is None:
            return Target(requested, None, None)
        return Target(requested, tool.name, tool.server, getattr(tool.executor, "grant", None))

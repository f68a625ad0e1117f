"""The tool of code mode: runs a script with the tools of its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import ToolError
from bridge.server.code.functions import ToolFunctions
from bridge.server.code.script import Script
from bridge.tools.calls import ToolExecutionResult  # noqa: TC001 - of the signature of a tool
from bridge.tools.context import InvocationContext  # noqa: TC001 - as above
from bridge.tools.function import tool

if TYPE_CHECKING:
    from bridge.server.code.limits import CodeLimits
    from bridge.tools.toolbox import ToolBox


RUN_TOOL = "run_code"
"""Name of the code tool."""
CALLS_PARAMETER = "bridge.code.calls"
"""Parameter of the invocation that makes the calls of a script; see `bridge.server.code.script.ScriptCalls`."""


class CurrentFunctions:
    """The tools of some callers as functions of scripts; they follow changes.

    Args:
        visible: The tools that the callers see.
        own_names: Names of the tools of the search, which are no functions.
    """

    def __init__(self, visible: ToolBox, own_names: tuple[str, ...]) -> None:
        self._visible = visible
        self._own_names = own_names
        self._known: ToolFunctions | None = None
        visible.on_change(self._forget)

    def get(self) -> ToolFunctions:
        """Return the functions now."""
        if self._known is None:
            tools = (each.specification for each in self._visible if each.name not in self._own_names)
            self._known = ToolFunctions(tools)
        return self._known

    def _forget(self) -> None:
        self._known = None


def code_tool(functions: CurrentFunctions, limits: CodeLimits) -> object:
    """Return the tool that runs scripts."""

    @tool(max_output_chars=limits.max_output_chars)
    async def run_code(code: str, context: InvocationContext) -> ToolExecutionResult:
        """Run a Python script that calls tools as async functions; search_tools finds them with their signatures.

        Example: ``a, b = await asyncio.gather(get_rate(currency="USD"), get_rate(currency="CHF"))``.
        The value of the last expression is the result; print() adds to it. A tool that fails raises RuntimeError.
        The script has a part of Python: json, re, math, datetime and other basic modules; no files, no network.

        Args:
            code: The script, with its imports.
            context: The context of the call.
        """
        calls = context.parameters.get(CALLS_PARAMETER)
        if calls is None:
            raise ToolError("scripts are run for requests of clients alone")
        return await Script(code, functions.get(), calls, limits).run(context.resumption)

    return run_code

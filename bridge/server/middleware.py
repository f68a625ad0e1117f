"""Middleware of a server: executors and functions that run it around what answers a request.

Limits, time limits and the error policy apply outside of the middleware; what it surrounds raises its failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from bridge.errors import ToolError, ToolTimeoutError, UnknownToolError
from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.execution import ExecutionPolicy, execute
from bridge.tools.executors import CallableExecutor
from bridge.tools.middleware import Layer, Request, around
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import OneTool, Tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutor, Tools

    Last = Callable[[Any, InvocationContext], Awaitable[ToolExecutionResult]]


def _raise(error: Exception, *_: object) -> NoReturn:
    raise error


_RAISING = ExecutionPolicy(on_arguments_error=_raise, on_execution_error=_raise)


class AroundTool:
    """Executor that runs middleware around the tool that a request names.

    Args:
        layers: The middleware.
        tools: The tools that the caller sees.
        tool: The tool that the client has named, in the version that it has named; None for one that does not exist.
        check: Refuses a tool for which the caller lacks a scope.
    """

    __slots__ = ("_call", "_check", "_missing", "_tool", "_tools")

    def __init__(
        self, layers: tuple[Layer, ...], tools: Tools, tool: Tool | None, check: Callable[[str], None]
    ) -> None:
        self._call = around(layers, self._last)
        self._tools = tools
        self._tool = tool
        self._check = check
        self._missing: UnknownToolError | None = None

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `bridge.tools.tool.ToolExecutor`.

        Raises:
            CallRefused: There is no such tool, or the middleware refused the call by a `ProtocolError`.
        """
        try:
            result: ToolExecutionResult = await self._call(request, context)
        except ProtocolError as error:
            raise CallRefused(error) from error
        except UnknownToolError as error:
            if error is not self._missing:
                raise
            raise CallRefused(ProtocolError(INVALID_PARAMS, str(error))) from None
        return result

    async def _last(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        if self._tool is not None and request.name == self._tool.name:
            return await self._tool.executor.execute(request, context)
        self._check(request.name)
        try:
            found = self._tools.get(request.name)
        except UnknownToolError as error:
            self._missing = error
            raise
        return await run_other(found, request.arguments_by_name(), context)


class Around:
    """Executor that runs middleware around reading a resource or rendering a prompt.

    Args:
        layers: The middleware.
        request: The request.
        last: Answers the request of the innermost middleware.
    """

    __slots__ = ("_call", "_request")

    def __init__(self, layers: tuple[Layer, ...], request: Request, last: Last) -> None:
        self._call = around(layers, last)
        self._request = request

    async def execute(self, _: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run the request; see `bridge.tools.tool.ToolExecutor`."""
        result: ToolExecutionResult = await self._call(self._request, context)
        return result


async def run_other(tool: Tool, arguments: Mapping[str, Any], context: InvocationContext) -> ToolExecutionResult:
    """Run another tool than the client has named, within its time limit; its failures are raised."""
    return await execute(OneTool(tool), ToolExecutionRequest(tool.name, arguments), context, _RAISING)


async def _nothing(*_: object) -> ToolExecutionResult:
    raise NotImplementedError


_UNKNOWN = Tool(ToolSpecification(name="unknown"), CallableExecutor(_nothing, "unknown"))


def unknown_run_by(executor: ToolExecutor) -> Tool:
    """Return a tool in place of one that does not exist, which middleware may answer for."""
    return _UNKNOWN.run_by(executor)


async def run_around(
    layers: tuple[Layer, ...],
    request: Request,
    context: InvocationContext,
    last: Callable[[Any, InvocationContext], Awaitable[Any]],
) -> Any:
    """Run middleware around a list or a completion.

    Raises:
        ProtocolError: The middleware refused the request, or it failed with a message for the client.
    """
    try:
        return await around(layers, last)(request, context)
    except (ToolError, ToolTimeoutError) as error:
        raise ProtocolError(INTERNAL_ERROR, str(error)) from None
    except CallRefused as refused:
        raise refused.error from None

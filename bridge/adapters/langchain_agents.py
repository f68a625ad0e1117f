"""Tools for LangChain's agents that follow changes of their source.

    agent = create_agent(model, middleware=[langchain_middleware(provider)])

Requires the package ``langchain``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import ensure_config

from bridge.adapters.calls import by_safe_name, current_tools
from bridge.adapters.langchain import LangChainTool, invocation_of
from bridge.portal import call_blocking
from bridge.service.toolset import Toolset
from bridge.tools.execution import LOCAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain.tools.tool_node import ToolCallRequest

    from bridge.tools.execution import ExecutionPolicy


class _Middleware(AgentMiddleware[Any, Any, Any]):
    def __init__(self, source: object, policy: ExecutionPolicy) -> None:
        super().__init__()
        self._toolset = Toolset(source)
        self._policy = policy

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(_with_tools(request, call_blocking(self._current, _asked(request))))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(_with_tools(request, await self._current(_asked(request))))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return handler(_with_tool(request, call_blocking(self._current, "")))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        return await handler(_with_tool(request, await self._current("")))

    async def _current(self, asked: str) -> dict[str, LangChainTool]:
        box = await current_tools(self._toolset, asked, invocation_of(ensure_config()))
        return {name: LangChainTool(name, tool, box, self._policy) for name, tool in by_safe_name(box).items()}


def langchain_middleware(source: object, *, policy: ExecutionPolicy = LOCAL) -> AgentMiddleware[Any, Any, Any]:
    """Return middleware for ``create_agent`` that adds the current tools before each model request.

    The agent itself needs no tools. The tools are those of `bridge.adapters.langchain_tools`; a tool that the agent has
    under the same name stays in its place.

    Args:
        source: A ToolBox, a provider of tools such as `bridge.McpToolProvider`, another source of tools (see
            `bridge.tools_from`), or a list of these.
        policy: Limits, callbacks and error handling.

    Raises:
        DefinitionError: The source has no tools.
    """
    return _Middleware(source, policy)


def _with_tools(request: ModelRequest[Any], current: dict[str, LangChainTool]) -> ModelRequest[Any]:
    own = {name for tool in request.tools if isinstance(name := getattr(tool, "name", None), str)}
    return request.override(tools=[*request.tools, *(tool for name, tool in current.items() if name not in own)])


def _with_tool(request: ToolCallRequest, current: dict[str, LangChainTool]) -> ToolCallRequest:
    found = current.get(request.tool_call["name"])
    return request if request.tool is not None or found is None else request.override(tool=found)


def _asked(request: ModelRequest[Any]) -> str:
    """The last message of the user, which a provider may choose tools by."""
    return next((message.text for message in reversed(request.messages) if message.type == "human"), "")

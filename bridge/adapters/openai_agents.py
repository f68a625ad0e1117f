"""Tools for agents of the OpenAI Agents SDK, and its function tools as tools of this package.

    agent = Agent(name="Desk", tools=openai_agents_tools(box))
    agent = Agent(name="Desk", mcp_servers=[openai_agents_server(provider)])      # follows changes of the tools
    box = ToolBox(from_openai_agents(lookup))

Requires the package ``openai-agents``.
"""

from __future__ import annotations

import re
from base64 import b64decode
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agents import FunctionTool, ModelBehaviorError, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.mcp import MCPServer
from agents.tool_context import ToolContext
from mcp_types import CallToolResult, GetPromptResult, ListPromptsResult
from mcp_types import Tool as McpTool
from pydantic import BaseModel, ValidationError

from bridge.adapters.calls import box_of, complete_result, current_tools, require_approval, run
from bridge.adapters.openai import SCHEMAS, parts_of
from bridge.adapters.replies import request_with
from bridge.errors import DefinitionError, ToolError
from bridge.models.encoding import json_text
from bridge.service.toolset import Toolset
from bridge.tools.content import File, Image, ResourceLink, Text
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolPolicy
from bridge.tools.toolbox import ToolBox
from bridge.wire.tools import result_to_wire, tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agents import RunContextWrapper
    from agents.agent import AgentBase
    from agents.mcp import MCPToolMetaContext
    from agents.tool import FunctionToolCustomDataContext

    from bridge.models.provider_schemas import ProviderRequest, ProviderTool
    from bridge.tools.calls import ToolExecutionRequest
    from bridge.tools.execution import ExecutionPolicy
    from bridge.types import Json

_OUTPUTS: dict[str, type[BaseModel]] = {"text": ToolOutputText, "image": ToolOutputImage, "file": ToolOutputFileContent}
_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def openai_agents_tools(
    source: object, *, approval: Callable[[Tool], bool] | None = None, policy: ExecutionPolicy = LOCAL
) -> list[FunctionTool]:
    """Return function tools for agents.

    The output of a failed tool begins with ``Error:``. The ``custom_data`` of an output item is the complete result, in
    MCP's JSON, unless the output contains it. Tools read the run's context as the invocation parameter ``context``.
    Schemas are rewritten where OpenAI does not support them, and names are those that it accepts.

    Args:
        source: A ToolBox, an `bridge.McpToolProvider`, a `bridge.client.BlockingToolProvider`, or another source of
            tools (see `bridge.tools_from`). The tools are the current ones; see `openai_agents_server` for others.
        approval: Returns True for tools whose calls need approval, such as `bridge.service.unless_read_only`; the run
            is then interrupted.
        policy: Limits, callbacks and error handling.

    Raises:
        DefinitionError: The source has no tools.
    """
    box = box_of(source)
    request = request_with(box, SCHEMAS)
    return [
        _function_tool(definition, box, request, policy, needs_approval=approval is not None and approval(tool))
        for definition, tool in zip(request.tools.values(), box, strict=True)
    ]


def _function_tool(
    definition: ProviderTool, box: ToolBox, request: ProviderRequest, policy: ExecutionPolicy, *, needs_approval: bool
) -> FunctionTool:
    complete: WeakKeyDictionary[ToolContext[Any], Json] = WeakKeyDictionary()

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        call = request.execution_request(definition.name, arguments or "{}", context.tool_call_id)
        result = (await run(box, call, _context(context), policy)).result
        if (data := complete_result(result)) is not None:
            complete[context] = data
        parts = parts_of(result)
        return parts if isinstance(parts, str) else [_OUTPUTS[part["type"]].model_validate(part) for part in parts]

    def custom_data(context: FunctionToolCustomDataContext) -> Mapping[str, Any] | None:
        return complete.pop(context.tool_context, None)

    return FunctionTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=definition.rewriting.schema,
        on_invoke_tool=invoke,
        strict_json_schema=definition.rewriting.is_strict,
        needs_approval=needs_approval,
        custom_data_extractor=custom_data,
    )


class _Server(MCPServer):
    def __init__(
        self, source: object, name: str, approval: Callable[[Tool], bool] | None, policy: ExecutionPolicy
    ) -> None:
        super().__init__(require_approval=self._needs_approval, tool_meta_resolver=self._keep_run_context)
        self._toolset = Toolset(source)
        self._name = name
        self._approval = approval or (lambda _: False)
        self._policy = policy
        self._listed = ToolBox(), request_with(ToolBox(), SCHEMAS)
        self._run_context: ContextVar[RunContextWrapper[Any] | None] = ContextVar("run_context", default=None)

    @property
    def name(self) -> str:
        return self._name

    async def connect(self) -> None:
        """Do nothing: the source of the tools connects itself."""

    async def cleanup(self) -> None:
        """Do nothing: the source of the tools belongs to the program."""

    async def list_tools(
        self,
        run_context: RunContextWrapper[Any] | None = None,
        agent: AgentBase[Any] | None = None,  # noqa: ARG002 - the base's
    ) -> list[McpTool]:
        box = await current_tools(self._toolset, None, _context(run_context))
        request = request_with(box, SCHEMAS)
        self._listed = box, request
        return [
            McpTool.model_validate(
                {
                    **tool_to_wire(tool.specification),
                    "name": definition.name,
                    "inputSchema": definition.rewriting.schema,
                }
            )
            for definition, tool in zip(request.tools.values(), box, strict=True)
        ]

    async def call_tool(
        self,
        tool_name: str,
        arguments: dict[str, Any] | None,
        meta: dict[str, Any] | None = None,
    ) -> CallToolResult:
        run_context = self._run_context.get()
        context = _context(run_context)
        context.meta = meta or {}
        box, request = self._listed
        call = request.execution_request(tool_name, arguments or {}, getattr(run_context, "tool_call_id", ""))
        result = (await run(box, call, context, self._policy)).result
        return CallToolResult.model_validate(result_to_wire(result))

    async def list_prompts(self) -> ListPromptsResult:
        return ListPromptsResult(prompts=[])

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> GetPromptResult:
        raise NotImplementedError(f"there is no prompt {name!r}: {self._name!r} has tools alone")

    def _needs_approval(self, _context: RunContextWrapper[Any], _agent: AgentBase[Any], tool: McpTool) -> bool:
        box, request = self._listed
        return self._approval(box.get(request.originals[tool.name]))

    def _keep_run_context(self, context: MCPToolMetaContext) -> None:
        """Keep the run's context for `call_tool`, which the SDK runs in a copy of the current context variables."""
        self._run_context.set(context.run_context)


def openai_agents_server(
    source: object,
    *,
    name: str = "bridge",
    approval: Callable[[Tool], bool] | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> MCPServer:
    """Return the tools as one of an agent's ``mcp_servers``, whose tools are listed before each model request.

    There is no server and no connection; the SDK lists only the tools of its servers again. Tools read the run's
    context as the invocation parameter ``context``.

    Args:
        source: A ToolBox, a provider of tools such as `bridge.McpToolProvider`, another source of tools (see
            `bridge.tools_from`), or a list of these.
        name: The server's name.
        approval: Returns True for tools whose calls need approval, such as `bridge.service.unless_read_only`; the run
            is then interrupted.
        policy: Limits, callbacks and error handling.

    Raises:
        DefinitionError: The source has no tools.
    """
    return _Server(source, name, approval, policy)


def from_openai_agents(*tools: FunctionTool, context: Any = None) -> list[Tool]:
    """Return function tools of the Agents SDK as tools that can be served over MCP, or used by an AI service.

    A tool that needs approval asks its caller for it, and fails if the caller cannot be asked.

    Args:
        tools: The tools.
        context: The context of a run, which tools read as ``ctx.context``.

    Raises:
        DefinitionError: One of the objects is no function tool, or has guardrails, which only a run applies.
    """
    return [_tool_of(tool, context) for tool in tools]


def _tool_of(tool: FunctionTool, run_context: Any) -> Tool:
    if not isinstance(tool, FunctionTool):
        raise DefinitionError(
            f"{tool!r} is not a function tool of the Agents SDK; make one with its decorator @function_tool"
        )
    if tool.tool_input_guardrails or tool.tool_output_guardrails:
        raise DefinitionError(
            f"{tool.name!r} has guardrails, which only a run applies; use bridge.guarded in their place"
        )
    specification = ToolSpecification(
        name=tool.name,
        description=tool.description or None,
        parameters=tool.params_json_schema,
        strict=tool.strict_json_schema or None,
    )

    async def call(request: ToolExecutionRequest, context: InvocationContext) -> object:
        arguments: Any = request.arguments
        text = json_text(arguments)
        own = ToolContext(run_context, tool_name=tool.name, tool_call_id=request.id or "", tool_arguments=text)
        needs = tool.needs_approval
        if needs if isinstance(needs, bool) else await needs(own, dict(arguments), own.tool_call_id):
            await require_approval(tool.name, arguments, context)
        try:
            output = await tool.on_invoke_tool(own, text)
        except ModelBehaviorError as error:
            raise ToolError(str(error)) from error
        return [_block(item) for item in output] if isinstance(output, list | tuple) else _block(output)

    timeout = ToolPolicy(timeout_seconds=tool.timeout_seconds)
    return Tool(specification, call, policy=timeout, source=f"function tool {tool.name!r}")


def _context(run_context: RunContextWrapper[Any] | None) -> InvocationContext:
    return InvocationContext(parameters={} if run_context is None else {"context": run_context.context})


def _block(output: Any) -> Any:
    """Convert an output of the Agents SDK to a content block; other values are converted like those of tools."""
    if isinstance(output, dict) and output.get("type") in _OUTPUTS:
        with suppress(ValidationError):  # JSON that is no output
            output = _OUTPUTS[output["type"]].model_validate(output)
    match output:
        case ToolOutputText():
            return Text(output.text)
        case ToolOutputImage(image_url=str() as url):
            data = _DATA_URL.fullmatch(url)
            return ResourceLink(url, "image") if data is None else Image(b64decode(data[2]), data[1])
        case ToolOutputFileContent(file_data=str() as url):
            data = _DATA_URL.fullmatch(url)
            mime_type, text = (None, url) if data is None else data.groups()
            return File(f"file:///{output.filename or 'file'}", b64decode(text), mime_type)
        case ToolOutputFileContent(file_url=str() as url):
            return ResourceLink(url, output.filename or "file")
        case ToolOutputImage() | ToolOutputFileContent():
            return Text(output.model_dump_json(exclude_none=True))
        case _:
            return output

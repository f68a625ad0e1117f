"""Tools for LangChain's agents and models, and LangChain's tools as tools of this package.

    agent = create_agent(model, tools=langchain_tools(provider))
    box = ToolBox(from_langchain(TavilySearch()))

Requires the package ``langchain-core``.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import ToolMessage
from langchain_core.runnables import ensure_config
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, ValidationError

from bridge.adapters.calls import box_of, by_safe_name, complete_result, parameters_of, run, shown_to_model
from bridge.errors import ArgumentsError, DefinitionError, ToolError
from bridge.models.encoding import base64_of, file_name_of, image_in, json_text
from bridge.portal import call_blocking
from bridge.tools.arguments.problems import problems_of, refusals_of
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.content import Audio, File, Image, Text, describe_block
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ReturnBehavior, Tool
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from bridge.tools.content import Content
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

PROGRESS_EVENT = "tool_progress"
"""Name of the custom event of a progress report; its data are ``tool``, ``progress``, ``total`` and ``message``."""

_THREAD = "thread_id"
"""Key of the conversation in a configuration; keys that begin with underscores belong to LangGraph."""


class LangChainTool(BaseTool):
    """A tool of this package for LangChain; made by `langchain_tools`."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: bool = True

    _box: ToolBox = PrivateAttr()
    _tool: Tool = PrivateAttr()
    _policy: ExecutionPolicy = PrivateAttr()

    def __init__(self, name: str, tool: Tool, box: ToolBox, policy: ExecutionPolicy) -> None:
        specification = tool.specification
        wire = tool_to_wire(specification)
        super().__init__(
            name=name,
            description=specification.description or "",
            args_schema=parameters_of(specification),
            return_direct=tool.return_behavior is ReturnBehavior.IMMEDIATE,
            metadata={**wire.get("annotations", {}), "_meta": dict(specification.metadata)},
        )
        self._box, self._tool, self._policy = box, tool, policy

    @property
    def bridge_tool(self) -> Tool:
        """The tool; for predicates such as `bridge.service.unless_read_only`."""
        return self._tool

    async def _arun(self, /, *_: Any, **arguments: Any) -> tuple[str | list[Json], Json | None]:
        return await self._call(arguments, ensure_config())

    def _run(self, /, *_: Any, **arguments: Any) -> tuple[str | list[Json], Json | None]:
        return call_blocking(self._call, arguments, ensure_config())

    async def _call(self, arguments: Json, config: RunnableConfig) -> tuple[str | list[Json], Json | None]:
        name = self._tool.name

        async def report(progress: float, total: float | None, message: str | None) -> None:
            data = {"tool": self.name, "progress": progress, "total": total, "message": message}
            await adispatch_custom_event(PROGRESS_EVENT, data, config=config)

        context = invocation_of(config).fork(report)
        result = (await run(self._box, ToolExecutionRequest(name, arguments), context, self._policy)).result
        content = _content(shown_to_model(result))
        if result.is_error:
            raise ToolException(content or f"{name!r} failed")
        return content, complete_result(result)


def invocation_of(config: RunnableConfig) -> InvocationContext:
    """Return the context of a run: its ``configurable`` as parameters, and its ``thread_id`` as memory id."""
    values = {key: value for key, value in config.get("configurable", {}).items() if not key.startswith("__")}
    return InvocationContext(memory_id=values.get(_THREAD), parameters=values)


def langchain_tools(source: object, *, policy: ExecutionPolicy = LOCAL) -> list[LangChainTool]:
    """Return tools for LangChain: for ``create_agent``, ``bind_tools`` and ``ToolNode``.

    Failed tools are messages with the status ``error``. The artifact of a message is the complete result, in MCP's
    JSON, unless the message contains it. Tools read the configuration's ``configurable`` as invocation parameters, and
    its ``thread_id`` as memory id. Progress is a custom event, `PROGRESS_EVENT`. Names are those that providers accept.

    Args:
        source: A ToolBox, an `bridge.McpToolProvider`, a `bridge.client.BlockingToolProvider`, or another source of
            tools (see `bridge.tools_from`). LangChain's lists do not change: call this again for the current tools, or
            give agents `bridge.adapters.langchain_middleware` instead.
        policy: Limits, callbacks and error handling.

    Raises:
        DefinitionError: The source has no tools.
    """
    box = box_of(source)
    return [LangChainTool(name, tool, box, policy) for name, tool in by_safe_name(box).items()]


def from_langchain(*tools: BaseTool) -> list[Tool]:
    """Return LangChain's tools as tools that can be served over MCP, or used by an AI service.

    Their configuration has the invocation parameters under ``configurable``, and the memory id as ``thread_id``. The
    result's attribute ``artifact`` is the message's artifact.

    Args:
        tools: The tools.

    Raises:
        DefinitionError: One of the objects is not a tool of LangChain.
    """
    return list(map(_tool_of, tools))


def _tool_of(tool: BaseTool) -> Tool:
    if not isinstance(tool, BaseTool):
        raise DefinitionError(f"{tool!r} is not a tool of LangChain; make one with its decorator @tool")
    function = convert_to_openai_tool(tool)["function"]
    specification = ToolSpecification(
        name=tool.name, description=tool.description or None, parameters=function["parameters"]
    )

    async def call(request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        arguments: Any = request.arguments
        thread = {} if context.memory_id is None else {_THREAD: context.memory_id}
        made = {"type": "tool_call", "name": tool.name, "args": dict(arguments), "id": request.id or ""}
        try:
            message = await tool.ainvoke(made, {"configurable": {**context.parameters, **thread}})
        except ValidationError as error:
            raise ArgumentsError(tool.name, problems_of(list(refusals_of(error, arguments)), arguments)) from error
        except ToolException as error:
            raise ToolError(str(error)) from error
        if not isinstance(message, ToolMessage):
            raise ToolError(f"{tool.name!r} returned a {type(message).__name__}, which only a graph can use")
        blocks = tuple(map(_block_of, message.content_blocks))
        return ToolExecutionResult(
            blocks, is_error=message.status == "error", attributes={"artifact": message.artifact}
        )

    behavior = ReturnBehavior.IMMEDIATE if tool.return_direct else ReturnBehavior.TO_LLM
    return Tool(specification, call, return_behavior=behavior, source=f"LangChain's tool {tool.name!r}")


def _content(content: tuple[Content, ...]) -> str | list[Json]:
    """Write content as text, or as LangChain's standard blocks if there is more; audio, which it rejects, as text."""
    blocks = [_written(block) for block in content]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "\n".join(texts) if len(texts) == len(blocks) else blocks


def _written(block: Content) -> Json:
    if (image := image_in(block)) is not None:
        return {"type": "image", "base64": base64_of(image), "mime_type": image.mime_type}
    if isinstance(block, File) and isinstance(block.content, bytes) and block.mime_type:
        name = {"filename": file_name_of(block)}
        return {"type": "file", "base64": base64_of(block), "mime_type": block.mime_type, "extras": name}
    return {"type": "text", "text": describe_block(block)}


def _block_of(block: Any) -> Content:
    """Read one of LangChain's standard blocks."""
    data, mime_type = block.get("base64"), block.get("mime_type")
    match block["type"]:
        case "text":
            return Text(block["text"])
        case "image" if data:
            return Image(b64decode(data), mime_type or "image/png")
        case "audio" if data:
            return Audio(b64decode(data), mime_type or "audio/wav")
        case "file" if data:
            name = (block.get("extras") or {}).get("filename", "file")
            return File(f"file:///{name}", b64decode(data), mime_type)
        case _:
            return Text(json_text({key: value for key, value in block.items() if key != "id"}))

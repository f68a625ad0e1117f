"""Tools for pydantic-ai's agents, and pydantic-ai's tools as tools of this package.

    agent = Agent(model, toolsets=[pydantic_ai_toolset(provider)])
    box = ToolBox(await from_pydantic_ai(toolset))

Requires the package ``pydantic-ai-slim``.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_ai import BinaryContent, CustomEvent, ModelRetry, RunContext, ToolReturn
from pydantic_ai import Tool as PydanticAiTool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed, UserError
from pydantic_ai.messages import FileUrl, TextContent
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema

from bridge.adapters.calls import (
    by_safe_name,
    complete_result,
    current_tools,
    parameters_of,
    require_approval,
    run,
    shown_to_model,
)
from bridge.errors import ArgumentsError, ToolError
from bridge.service.toolset import Toolset
from bridge.tools.arguments.problems import problems_of, refusals_of
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.content import Audio, File, Image, Media, ResourceLink, Text, describe_block
from bridge.tools.context import InvocationContext
from bridge.tools.execution import LOCAL
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool
from bridge.wire.tools import tool_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.tools.content import Content
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.toolbox import ToolBox

_ARGUMENTS = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""A validator of nothing but objects, since tools validate their arguments themselves."""


@dataclass(kw_only=True)
class ToolProgressEvent(CustomEvent):
    """Progress report of a tool, in the event stream of a run."""

    progress: float
    """Amount of work done, in any unit."""
    total: float | None = None
    """Total amount of work in the same unit, if known."""
    message: str | None = None
    """Description of the current step, for people."""


@dataclass(kw_only=True)
class _OfferedTool(ToolsetTool[Any]):
    box: ToolBox
    own_name: str


class _Toolset(AbstractToolset[Any]):
    def __init__(
        self, source: object, own_id: str | None, approval: Callable[[Tool], bool] | None, policy: ExecutionPolicy
    ) -> None:
        self._toolset = Toolset(source)
        self._id = own_id
        self._approval = approval or (lambda _: False)
        self._policy = policy

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        box = await current_tools(self._toolset, ctx.prompt, _context(ctx))
        return {
            name: _OfferedTool(
                toolset=self,
                tool_def=self._definition(name, tool),
                max_retries=ctx.max_retries,
                args_validator=_ARGUMENTS,
                box=box,
                own_name=tool.name,
            )
            for name, tool in by_safe_name(box).items()
        }

    def _definition(self, name: str, tool: Tool) -> ToolDefinition:
        specification = tool.specification
        wire = tool_to_wire(specification)
        return ToolDefinition(
            name=name,
            description=specification.description,
            parameters_json_schema=parameters_of(specification),
            strict=specification.strict,
            kind="unapproved" if self._approval(tool) else "function",
            metadata={"annotations": wire.get("annotations", {}), "meta": dict(specification.metadata)},
        )

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        assert isinstance(tool, _OfferedTool), "made by get_tools"

        async def report(progress: float, total: float | None, message: str | None) -> None:
            with suppress(UserError):  # outside of a run there are no events
                await ctx.emit(ToolProgressEvent(progress=progress, total=total, message=message))

        request = ToolExecutionRequest(tool.own_name, tool_args, ctx.tool_call_id)
        execution = await run(tool.box, request, _context(ctx).fork(report), self._policy)
        result = execution.result
        if isinstance(execution.error, ArgumentsError):
            raise ModelRetry(result.model_text)
        if result.is_error:
            raise ToolFailed(result.model_text or f"{name!r} failed")
        return ToolReturn(_value(shown_to_model(result)), metadata=complete_result(result))


def pydantic_ai_toolset(
    source: object,
    *,
    id: str | None = None,  # noqa: A002 - pydantic-ai's word
    approval: Callable[[Tool], bool] | None = None,
    policy: ExecutionPolicy = LOCAL,
) -> AbstractToolset[Any]:
    """Return a toolset for pydantic-ai's agents, which follows changes of the tools before each model request.

    Invalid arguments are a `ModelRetry`, and other failures a `ToolFailed`. The metadata of a tool's return is the
    complete result, in MCP's JSON, unless the return contains it. Tools read the run's ``deps`` as the invocation
    parameter ``deps``, and the conversation's id as memory id. Progress is a `ToolProgressEvent`. Names are those that
    providers accept.

    Args:
        source: A ToolBox, a provider of tools such as `bridge.McpToolProvider`, another source of tools (see
            `bridge.tools_from`), or a list of these.
        id: The toolset's id, which durable execution requires.
        approval: Returns True for tools whose calls need approval, such as `bridge.service.unless_read_only`; the run
            then ends with `DeferredToolRequests`.
        policy: Limits, callbacks and error handling.

    Raises:
        DefinitionError: The source has no tools.
    """
    return _Toolset(source, id, approval, policy)


async def from_pydantic_ai(source: AbstractToolset[Any] | PydanticAiTool[Any], *, deps: Any = None) -> list[Tool]:
    """Return pydantic-ai's tools as tools that can be served over MCP, or used by an AI service.

    A tool that requires approval asks its caller for it, and fails if the caller cannot be asked. A toolset with
    connections must be open while its tools are called.

    Args:
        source: A tool or a toolset, which is listed once.
        deps: Dependencies of the tools.

    Raises:
        DefinitionError: A tool's name is not allowed.
    """
    toolset = FunctionToolset([source]) if isinstance(source, PydanticAiTool) else source
    context = RunContext(deps=deps, model=TestModel(), usage=RunUsage())
    return [_tool_of(tool, context) for tool in (await toolset.get_tools(context)).values()]


def _tool_of(tool: ToolsetTool[Any], run_context: RunContext[Any]) -> Tool:
    definition = tool.tool_def
    specification = ToolSpecification(
        name=definition.name,
        description=definition.description,
        parameters=definition.parameters_json_schema,
        strict=definition.strict,
        metadata=(definition.metadata or {}).get("meta") or {},
    )

    async def call(request: ToolExecutionRequest, context: InvocationContext) -> object:
        given: Any = request.arguments
        is_approved = definition.kind == "unapproved"
        if is_approved:
            await require_approval(definition.name, given, context)
        own = replace(run_context, tool_name=definition.name, tool_call_id=request.id, tool_call_approved=is_approved)
        try:
            arguments = tool.args_validator.validate_python(dict(given))
        except ValidationError as error:
            problems = problems_of(list(refusals_of(error, given)), given)
            raise ArgumentsError(definition.name, problems) from error
        try:
            if tool.args_validator_func is not None:
                checked = tool.args_validator_func(own, **arguments)
                _ = await checked if inspect.isawaitable(checked) else checked
            return _result(await tool.toolset.call_tool(definition.name, arguments, own, tool))
        except (ModelRetry, ToolFailed) as error:
            raise ToolError(error.message) from error
        except (ApprovalRequired, CallDeferred) as error:
            raise ToolError(f"{definition.name!r} needs a run of an agent, which can defer its call") from error

    return Tool(specification, call, source=f"pydantic-ai's tool {definition.name!r}")


def _context(ctx: RunContext[Any]) -> InvocationContext:
    return InvocationContext(invocation_id=ctx.run_id, memory_id=ctx.conversation_id, parameters={"deps": ctx.deps})


def _value(content: tuple[Content, ...]) -> Any:
    """Convert content to a return value: text, a file, or a list of these."""
    items = [_item(block) for block in content]
    if all(isinstance(item, str) for item in items):
        return "\n".join(items)
    return items[0] if len(items) == 1 else items


def _item(block: Content) -> Any:
    if isinstance(block, Media):
        return BinaryContent(data=block.data, media_type=block.mime_type)
    if isinstance(block, File) and isinstance(block.content, bytes) and block.mime_type:
        return BinaryContent(data=block.content, media_type=block.mime_type)
    return describe_block(block)


def _result(returned: Any) -> Any:
    """Convert a return value to content blocks where it has files; other values are converted like those of tools."""
    if isinstance(returned, ToolReturn):
        beside = returned.content if returned.content is not None else ()
        items = [returned.return_value, *([beside] if isinstance(beside, str) else beside)]
        return _result(items[0] if len(items) == 1 else items)
    if isinstance(returned, list | tuple) and any(map(_is_content, returned)):
        return [_block(item) for item in returned]
    return _block(returned)


def _is_content(value: object) -> bool:
    return isinstance(value, BinaryContent | FileUrl | TextContent)


def _block(value: Any) -> Any:
    match value:
        case TextContent():
            return Text(value.content)
        case BinaryContent() if value.is_image:
            return Image(value.data, value.media_type)
        case BinaryContent() if value.is_audio:
            return Audio(value.data, value.media_type)
        case BinaryContent():
            return File(f"file:///{value.identifier}", value.data, value.media_type)
        case FileUrl():
            return ResourceLink(value.url, value.identifier, mime_type=value.media_type)
        case _:
            return value

"""Calls that another framework's agent makes, the same for each framework."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.errors import ToolError
from bridge.service.observation import observed_execution
from bridge.telemetry import current
from bridge.tools.content import Text, UserMessage
from bridge.tools.execution import execute_timed
from bridge.tools.toolbox import ToolBox
from bridge.tools.transform import safe_names
from bridge.wire.tools import forwarded_meta, result_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bridge.service.toolset import Toolset
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest, ToolExecutionResult
    from bridge.types import Json

_NO_FORM: Json = {"type": "object", "properties": {}}


def box_of(source: object) -> ToolBox:
    """Return the tools of a provider, such as `bridge.McpToolProvider`, or those of `bridge.ToolBox.of`.

    Raises:
        DefinitionError: The source has no tools.
    """
    tools = getattr(source, "tools", None) if hasattr(source, "provide_tools") else None
    return tools if isinstance(tools, ToolBox) else ToolBox.of(source)


async def current_tools(toolset: Toolset, prompt: object, context: InvocationContext) -> ToolBox:
    """Return the tools of one model request; lists of servers that have expired are fetched again."""
    offered = await toolset.open(UserMessage.of(prompt if isinstance(prompt, str) else ""), context)
    await offered.next(())
    return offered.offer.box


def by_safe_name(box: ToolBox) -> dict[str, Tool]:
    """Return the tools by names that every chat model's provider accepts."""
    names = safe_names(tool.name for tool in box)
    return {names[tool.name]: tool for tool in box}


def parameters_of(specification: ToolSpecification) -> Json:
    """Return the schema of the arguments, with the ``properties`` that frameworks expect in it."""
    return {"type": "object", "properties": {}, **specification.parameters}


async def run(
    box: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
) -> ToolExecution:
    """Run one call, observed like that of an AI service."""
    execution = execute_timed(box, request, context, policy)
    if (observer := current.observer()) is None:
        return await execution
    return await observed_execution(observer, execution, request, box.find(request.name), context)


def shown_to_model(result: ToolExecutionResult) -> tuple[Content, ...]:
    """Return the content that the model reads."""
    return result.content if result.model_content is None else result.model_content


def complete_result(result: ToolExecutionResult) -> Json | None:
    """Return the complete result as MCP's ``CallToolResult``; None if it is the text that the model reads.

    Metadata of the protocol, such as the server's name, is left out.
    """
    is_text = all(isinstance(block, Text) for block in result.content) and result.model_content is None
    metadata = forwarded_meta(result.metadata)
    if is_text and result.structured_content is None and not metadata:
        return None
    return result_to_wire(replace(result, model_content=None, metadata=metadata))


async def require_approval(name: str, arguments: Mapping[str, Any] | str, context: InvocationContext) -> None:
    """Ask the caller of a tool for the approval that its framework requires.

    Raises:
        ToolError: The caller does not approve, or cannot be asked.
    """
    answer = await context.elicit(f"Allow the call of {name!r} with {arguments}?", _NO_FORM)
    if not answer.accepted:
        raise ToolError(f"the call of {name!r} was not approved")

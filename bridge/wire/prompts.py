"""Conversion of prompts, their messages, and completions to MCP JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.tools.content import block_to_json
from bridge.types import Json, without_none

if TYPE_CHECKING:
    from bridge.prompts.prompt import Prompt
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.completion import Completion


def prompt_to_wire(prompt: Prompt) -> Json:
    """Convert a prompt to MCP's ``Prompt``."""
    arguments = [
        {"name": each.name, "required": each.required} | without_none(title=each.title, description=each.description)
        for each in prompt.arguments
    ]
    return {"name": prompt.name} | without_none(
        title=prompt.title,
        description=prompt.description,
        arguments=arguments or None,
        icons=list(prompt.icons) or None,
        _meta=dict(prompt.metadata) or None,
    )


def messages_to_wire(prompt: Prompt, result: ToolExecutionResult) -> Json:
    """Convert what was rendered to MCP's ``GetPromptResult``."""
    messages = [{"role": each.role, "content": block_to_json(each.content)} for each in result.value]
    wire: Json = {"messages": messages} | without_none(description=prompt.description)
    return wire | {"_meta": result.metadata} if result.metadata else wire


def completion_to_wire(completion: Completion) -> Json:
    """Convert a completion to MCP's ``CompleteResult``."""
    values = {"values": list(completion.values), "hasMore": completion.has_more}
    return {"completion": values | without_none(total=completion.total)}

"""Conversion of prompts, their messages, and completions to MCP JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, WireError
from bridge.text import short_repr
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.completion import MAX_VALUES, Completion
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.specification import is_icon
from bridge.types import Json, optional_field, require_object, require_text, without_none
from bridge.wire.received import Received, own_meta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.prompts.prompt import Prompt, PromptMessage


_ARGUMENT_MEMBERS = frozenset({"name", "title", "description", "required"})


def prompt_to_wire(prompt: Prompt) -> Json:
    """Convert a prompt to MCP's ``Prompt``."""
    arguments = [
        {**each.other, "name": each.name, "required": each.required}
        | without_none(title=each.title, description=each.description)
        for each in prompt.arguments
    ]
    return {"name": prompt.name} | without_none(
        title=prompt.title,
        description=prompt.description,
        arguments=arguments or None,
        icons=list(prompt.icons) or None,
        _meta=dict(prompt.metadata) or None,
    )


def messages_to_wire(result: ToolExecutionResult, description: str | None = None) -> Json:
    """Convert what was rendered to MCP's ``GetPromptResult``, with the description of its prompt."""
    if isinstance(result.received, ReceivedMessages):
        return result.received.passed_on()
    messages = [{"role": each.role, "content": block_to_json(each.content)} for each in result.value]
    wire: Json = {"messages": messages} | without_none(description=description)
    return wire | {"_meta": result.metadata} if result.metadata else wire


def completion_to_wire(completion: Completion) -> Json:
    """Convert a completion to MCP's ``CompleteResult``."""
    values = {"values": list(completion.values), "hasMore": completion.has_more}
    return {"completion": values | without_none(total=completion.total)}


def prompt_from_wire(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Convert MCP's ``Prompt`` to the attributes of a prompt.

    Raises:
        WireError: A member has the wrong type.
    """
    from bridge.prompts.prompt import PromptArgument  # noqa: PLC0415 - programs without prompts start faster

    arguments = [require_object(each, "an argument") for each in optional_field(wire, "arguments", list) or ()]
    return {
        "name": require_text(wire.get("name")),
        "title": optional_field(wire, "title", str),
        "description": optional_field(wire, "description", str),
        "arguments": tuple(
            PromptArgument(
                name=require_text(each.get("name")),
                title=optional_field(each, "title", str),
                description=optional_field(each, "description", str),
                required=each.get("required") is True,
                other={key: value for key, value in each.items() if key not in _ARGUMENT_MEMBERS},
            )
            for each in arguments
        ),
        # Icons are decorative: malformed ones are dropped.
        "icons": tuple(filter(is_icon, optional_field(wire, "icons", list) or ())),
        "metadata": optional_field(wire, "_meta", dict) or {},
    }


def messages_from_wire(wire: Mapping[str, Any]) -> tuple[PromptMessage, ...]:
    """Convert MCP's ``GetPromptResult`` to messages.

    Raises:
        WireError: They are missing or malformed.
    """
    from bridge.prompts.prompt import PromptMessage  # noqa: PLC0415 - programs without prompts start faster

    messages = optional_field(wire, "messages", list)
    if messages is None:
        raise WireError(f"a result without messages: {short_repr(wire)}")
    try:
        return tuple(PromptMessage(block_from_json(each["content"]), each["role"]) for each in messages)
    except (KeyError, TypeError, DefinitionError) as error:
        raise WireError(f"a malformed message: {error}") from error


def completion_from_wire(wire: Mapping[str, Any]) -> Completion:
    """Convert MCP's ``CompleteResult`` to a completion.

    Raises:
        WireError: It is malformed.
    """
    completion = require_object(wire.get("completion"), "a completion")
    values = tuple(map(require_text, optional_field(completion, "values", list) or ()))
    has_more = completion.get("hasMore") is True or len(values) > MAX_VALUES
    return Completion(values[:MAX_VALUES], optional_field(completion, "total", int), has_more)


class ReceivedMessages(Received):
    """MCP's ``GetPromptResult`` of another server."""

    __slots__ = ()

    BODY = frozenset({"description", "messages"})

    def read(self) -> ToolExecutionResult:
        """Convert it to a result; one that is malformed becomes an error."""
        try:
            messages = messages_from_wire(self)
        except WireError as error:
            return ToolExecutionResult.error(f"the server returned malformed messages: {error}")
        return ToolExecutionResult((), value=messages, metadata=own_meta(self))

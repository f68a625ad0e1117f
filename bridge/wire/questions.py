"""The wire: this package's values as MCP's JSON, and back, both directions side by side.

Plain mappings in and out (the SDK's handlers accept them), the same for server, fast path, client and gateway. Sources:
MCP schema 2025-11-25 and 2026-07-28, ``Tool``, ``CallToolResult``, ``ContentBlock``, ``InputRequests``.
Reading is strict about what it needs and carries the rest: what cannot be read is a `WireError` that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from bridge.errors import DefinitionError, WireError
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
    UrlElicitation,
)
from bridge.tools.specification import HINTS, ToolAnnotations, ToolSpecification, is_icon
from bridge.tools.tool import ToolExecutionResult
from bridge.types import Json, optional_field, require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.content import Content
    from bridge.tools.questions import Answer, Question

STRICT_META_KEY = "io.github.mcp-toolbridge/strict"
"""Where a specification's ``strict`` travels, in ``_meta``: MCP has no field for it."""


# --- what goes with a message ----------------------------------------------------------------------------------------


def senders_meta(meta: Mapping[str, Any] | None) -> Json:
    """What of a ``_meta`` its sender says, and is passed on: a trace's context, say, and any key that is not MCP's own.

    What belongs to the protocol (``progressToken``, ``io.modelcontextprotocol/…``) concerns only the two who exchange
    the message.

    Args:
        meta: The ``_meta`` as it came; None for none.
    """
    return {key: value for key, value in meta.items() if not _is_protocols(key)} if meta else {}


def _is_protocols(key: str) -> bool:
    # The second is how the SDK spells the first.
    return key in {"progressToken", "progress_token"} or key.startswith("io.modelcontextprotocol/")


# --- tools -----------------------------------------------------------------------------------------------------------


def tool_to_wire(specification: ToolSpecification) -> Json:
    """A specification as MCP's ``Tool``."""
    wire: Json = {"name": specification.name, "inputSchema": _object_schema(specification.parameters)}
    metadata = dict(specification.metadata)
    if specification.strict is not None:
        metadata[STRICT_META_KEY] = specification.strict
    if (hints := specification.annotations) is not None:
        said = {key: getattr(hints, name) for name, key in HINTS.items()}
        wire["annotations"] = {key: value for key, value in said.items() if value is not None}
    return wire | without_none(
        title=specification.title,
        description=specification.description,
        outputSchema=specification.output_schema,
        icons=list(specification.icons) or None,
        _meta=metadata or None,
    )


def tool_from_wire(wire: Mapping[str, Any]) -> ToolSpecification:
    """MCP's ``Tool`` as a specification, its schemas exactly as they came.

    Raises:
        WireError: The name or the input schema is missing or of the wrong type.
    """
    name, schema = require_object(wire, "a tool").get("name"), wire.get("inputSchema")
    if not isinstance(name, str) or not name:
        raise WireError(f"a tool without a name: {short_repr(wire)}")
    if not isinstance(schema, dict) or not isinstance(schema.get("type", "object"), str):
        raise WireError(f"the tool {name!r} has no inputSchema of type 'object': {short_repr(wire)}")
    metadata = dict(optional_field(wire, "_meta", dict) or {})
    strict = metadata.pop(STRICT_META_KEY, None)
    hints = optional_field(wire, "annotations", dict)
    try:
        return ToolSpecification(
            name=name,
            title=optional_field(wire, "title", str),
            description=optional_field(wire, "description", str),
            parameters=schema,
            output_schema=optional_field(wire, "outputSchema", dict),
            annotations=None if hints is None else _annotations_from_wire(hints),
            metadata=metadata,
            # They are only for show: one that is none is left out.
            icons=tuple(filter(is_icon, optional_field(wire, "icons", list) or ())),
            strict=strict if isinstance(strict, bool) else None,
        )
    except DefinitionError as error:
        raise WireError(f"a tool that cannot be one: {error}") from error


def _annotations_from_wire(hints: Mapping[str, Any]) -> ToolAnnotations:
    """Hints are only hints: one of the wrong type is as good as none."""
    kept: dict[str, Any] = {}
    for name, key in HINTS.items():
        if isinstance(value := hints.get(key), str if name == "title" else bool):
            kept[name] = value
    return ToolAnnotations(**kept)


def _object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """MCP asks for ``type: object`` at the root; a schema that leaves it out (a bare ``$ref``, say) gets it."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


# --- results ---------------------------------------------------------------------------------------------------------


def result_to_wire(result: ToolExecutionResult) -> Json:
    """A result as MCP's ``CallToolResult``: as content what a model reads, as structured content the whole."""
    shown = result.content if result.model_content is None else result.model_content
    wire: Json = {"content": [block_to_json(block) for block in shown], "isError": result.is_error}
    if result.structured_content is not None:
        wire["structuredContent"] = result.structured_content
    if result.metadata:
        wire["_meta"] = result.metadata
    return wire


def result_from_wire(wire: Mapping[str, Any]) -> ToolExecutionResult:
    """MCP's ``CallToolResult`` as a result.

    Raises:
        WireError: The content is missing or malformed.
    """
    content = require_object(wire, "a result").get("content")
    if not isinstance(content, list):
        raise WireError(f"a result without content: {short_repr(wire)}")
    return ToolExecutionResult(
        tuple(block_from_json(block) for block in content),
        wire.get("structuredContent"),
        wire.get("isError") is True,
        metadata=optional_field(wire, "_meta", dict) or {},
    )


# --- questions -------------------------------------------------------------------------------------------------------


def question_to_wire(question: Question) -> Json:
    """A question as MCP's request: ``{"method": …, "params": …}``."""
    match question:
        case Elicitation():
            params: Json = {"mode": "form", "message": question.message, "requestedSchema": question.schema}
            return {"method": "elicitation/create", "params": params | without_none(_meta=question.meta or None)}
        case UrlElicitation():
            params = {"mode": "url", "message": question.message, "url": question.url}
            params |= without_none(elicitationId=question.elicitation_id or None, _meta=question.meta or None)
            return {"method": "elicitation/create", "params": params}
        case Sampling():
            return {"method": "sampling/createMessage", "params": _sampling_to_wire(question)}
        case Roots():
            return {"method": "roots/list"} | ({"params": {"_meta": question.meta}} if question.meta else {})


def question_from_wire(wire: Mapping[str, Any]) -> Question:
    """MCP's request as a question.

    Raises:
        WireError: The method is unknown, or something that it needs is missing or malformed.
    """
    params = optional_field(require_object(wire, "a question"), "params", dict) or {}
    meta = senders_meta(optional_field(params, "_meta", dict))
    try:
        match wire.get("method"):
            case "elicitation/create" if params.get("mode", "form") == "url":
                told = optional_field(params, "elicitationId", str) or ""
                return UrlElicitation(require_text(params["message"]), require_text(params["url"]), told, meta)
            case "elicitation/create":
                return Elicitation(
                    require_text(params["message"]), require_object(params["requestedSchema"], "a form"), meta
                )
            case "sampling/createMessage":
                return _sampling_from_wire(params, meta)
            case "roots/list":
                return Roots(meta)
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed question: {short_repr(wire)}") from error
    raise WireError(f"a question of an unknown kind: {short_repr(wire)}")


def answer_to_wire(answer: Answer) -> Json:
    """An answer as MCP's result of the request that asked."""
    match answer:
        case ElicitationAnswer():
            return {"action": answer.action} | without_none(content=answer.content, _meta=answer.meta or None)
        case SamplingAnswer():
            content = _one_or_all([_part_to_wire(part) for part in answer.content])
            return {"role": answer.role, "content": content, "model": answer.model} | without_none(
                stopReason=answer.stop_reason, _meta=answer.meta or None
            )
        case _:
            return {"roots": [{"uri": root.uri} | without_none(name=root.name, _meta=root.metadata) for root in answer]}


def answer_from_wire(question: Question, wire: Mapping[str, Any]) -> Answer:
    """MCP's result of the request that asked, as the answer to a question.

    Raises:
        WireError: The result is not what the question asks for.
    """
    try:
        match question:
            case Elicitation() | UrlElicitation():
                if wire["action"] not in {"accept", "decline", "cancel"}:
                    raise WireError(f"an elicitation's action is accept, decline or cancel: {short_repr(wire)}")
                meta = senders_meta(optional_field(wire, "_meta", dict))
                return ElicitationAnswer(wire["action"], optional_field(wire, "content", dict), meta)
            case Sampling():
                content, model = _parts_from_wire(wire["content"]), require_text(wire["model"])
                meta = senders_meta(optional_field(wire, "_meta", dict))
                return SamplingAnswer(content, model, _role(wire), optional_field(wire, "stopReason", str), meta)
            case Roots():
                return tuple(
                    Root(
                        require_text(root["uri"]),
                        optional_field(root, "name", str),
                        optional_field(root, "_meta", dict),
                    )
                    for root in wire["roots"]
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed answer: {short_repr(wire)}") from error


def _role(wire: Mapping[str, Any]) -> Literal["user", "assistant"]:
    if wire["role"] not in {"user", "assistant"}:
        raise WireError(f"a message's role is user or assistant: {short_repr(wire)}")
    return cast("Literal['user', 'assistant']", wire["role"])


def _sampling_to_wire(question: Sampling) -> Json:
    messages = [
        {"role": message.role, "content": _one_or_all([_part_to_wire(part) for part in message.content])}
        | without_none(_meta=message.metadata)
        for message in question.messages
    ]
    return {"messages": messages, "maxTokens": question.max_tokens} | without_none(
        systemPrompt=question.system_prompt,
        temperature=question.temperature,
        stopSequences=list(question.stop_sequences) or None,
        modelPreferences=question.model_preferences,
        metadata=question.metadata or None,
        includeContext=question.include_context,
        tools=[tool_to_wire(tool) for tool in question.tools] or None,
        toolChoice=None if question.tool_choice is None else {"mode": question.tool_choice},
        _meta=question.meta or None,
    )


def _sampling_from_wire(params: Json, meta: Json) -> Sampling:
    messages = [
        SamplingMessage(_role(message), _parts_from_wire(message["content"]), optional_field(message, "_meta", dict))
        for message in params["messages"]
    ]
    choice = optional_field(params, "toolChoice", dict)
    return Sampling(
        messages,
        params["maxTokens"],
        optional_field(params, "systemPrompt", str),
        params.get("temperature"),
        tuple(optional_field(params, "stopSequences", list) or ()),
        optional_field(params, "modelPreferences", dict),
        optional_field(params, "metadata", dict) or {},
        _one_of(params, "includeContext", "none", "thisServer", "allServers"),
        tuple(tool_from_wire(tool) for tool in optional_field(params, "tools", list) or ()),
        None if choice is None else (_one_of(choice, "mode", "auto", "required", "none") or "auto"),
        meta,
    )


def _one_of(wire: Json, key: str, *known: str) -> Any:
    """A word that may be absent.

    Raises:
        WireError: It is none of those that are known.
    """
    word = optional_field(wire, key, str)
    if word is not None and word not in known:
        raise WireError(f"{key!r} is one of {', '.join(known)}: {short_repr(wire)}")
    return word


def _part_to_wire(part: Content | ToolUse | ToolUseResult) -> Json:
    """A part of a message to or from a model as MCP's ``SamplingMessageContentBlock``."""
    match part:
        case ToolUse():
            wire: Json = {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
            return wire | without_none(_meta=part.metadata)
        case ToolUseResult():
            wire = {"type": "tool_result", "toolUseId": part.id, "content": [block_to_json(b) for b in part.content]}
            return wire | without_none(
                structuredContent=part.structured_content, isError=part.is_error or None, _meta=part.metadata
            )
        case _:
            return block_to_json(part)


def _part_from_wire(wire: Json) -> Content | ToolUse | ToolUseResult:
    match require_object(wire, "content").get("type"):
        case "tool_use":
            arguments = require_object(wire["input"], "the input of a tool")
            return ToolUse(
                require_text(wire["id"]), require_text(wire["name"]), arguments, optional_field(wire, "_meta", dict)
            )
        case "tool_result":
            return ToolUseResult(
                require_text(wire["toolUseId"]),
                tuple(block_from_json(block) for block in optional_field(wire, "content", list) or ()),
                wire.get("structuredContent"),
                wire.get("isError") is True,
                optional_field(wire, "_meta", dict),
            )
        case _:
            return block_from_json(wire)


def _parts_from_wire(wire: object) -> tuple[Content | ToolUse | ToolUseResult, ...]:
    return tuple(_part_from_wire(cast("Json", part)) for part in (wire if isinstance(wire, list) else [wire]))


def _one_or_all(blocks: list[Json]) -> Json | list[Json]:
    return blocks[0] if len(blocks) == 1 else blocks

"""The wire: this package's values as MCP's JSON, and back, both directions side by side.

Plain mappings in and out (the SDK's handlers accept them), the same for server, fast path, client and gateway. Sources:
MCP schema 2025-11-25 and 2026-07-28, ``Tool``, ``CallToolResult``, ``ContentBlock``, ``InputRequests``.
Reading is strict about what it needs and carries the rest: what cannot be read is a `WireError` that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from bridge.errors import DefinitionError, WireError
from bridge.tools.content_json import block_from_json, block_to_json
from bridge.tools.json_reading import Json, abridged, fields, optional, present, text
from bridge.tools.model import ToolAnnotations, ToolExecutionResult, ToolSpecification
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    UrlElicitation,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.content import Content
    from bridge.tools.questions import Answer, Question

STRICT_META_KEY = "io.github.mcp-toolbridge/strict"
"""Where a specification's ``strict`` travels, in ``_meta``: MCP has no field for it."""

_ANNOTATIONS = {
    "title": "title",
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


# --- tools -----------------------------------------------------------------------------------------------------------


def tool_to_wire(specification: ToolSpecification) -> Json:
    """A specification as MCP's ``Tool``."""
    wire: Json = {"name": specification.name, "inputSchema": _object_schema(specification.parameters)}
    metadata = dict(specification.metadata)
    if specification.strict is not None:
        metadata[STRICT_META_KEY] = specification.strict
    if (hints := specification.annotations) is not None:
        said = {key: getattr(hints, name) for name, key in _ANNOTATIONS.items()}
        wire["annotations"] = {key: value for key, value in said.items() if value is not None}
    return wire | present(
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
    name, schema = fields(wire, "a tool").get("name"), wire.get("inputSchema")
    if not isinstance(name, str) or not name:
        raise WireError(f"a tool without a name: {abridged(wire)}")
    if not isinstance(schema, dict) or not isinstance(schema.get("type", "object"), str):
        raise WireError(f"the tool {name!r} has no inputSchema of type 'object': {abridged(wire)}")
    metadata = dict(optional(wire, "_meta", dict) or {})
    strict = metadata.pop(STRICT_META_KEY, None)
    hints = optional(wire, "annotations", dict)
    try:
        return ToolSpecification(
            name=name,
            title=optional(wire, "title", str),
            description=optional(wire, "description", str),
            parameters=schema,
            output_schema=optional(wire, "outputSchema", dict),
            annotations=None if hints is None else _annotations_from_wire(hints),
            metadata=metadata,
            icons=tuple(optional(wire, "icons", list) or ()),
            strict=strict if isinstance(strict, bool) else None,
        )
    except DefinitionError as error:
        raise WireError(f"a tool that cannot be one: {error}") from error


def _annotations_from_wire(hints: Mapping[str, Any]) -> ToolAnnotations:
    """Hints are only hints: one of the wrong type is as good as none."""
    kept: dict[str, Any] = {}
    for name, key in _ANNOTATIONS.items():
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
    content = fields(wire, "a result").get("content")
    if not isinstance(content, list):
        raise WireError(f"a result without content: {abridged(wire)}")
    return ToolExecutionResult(
        tuple(block_from_json(block) for block in content),
        wire.get("structuredContent"),
        wire.get("isError") is True,
        metadata=optional(wire, "_meta", dict) or {},
    )


# --- questions -------------------------------------------------------------------------------------------------------


def question_to_wire(question: Question) -> Json:
    """A question as MCP's request: ``{"method": …, "params": …}``."""
    match question:
        case Elicitation():
            params: Json = {"mode": "form", "message": question.message, "requestedSchema": question.schema}
            return {"method": "elicitation/create", "params": params}
        case UrlElicitation():
            params = {"mode": "url", "message": question.message, "url": question.url}
            params["elicitationId"] = question.elicitation_id
            return {"method": "elicitation/create", "params": params}
        case Sampling():
            params = {
                "messages": [
                    {"role": message.role, "content": _one_or_all([block_to_json(b) for b in message.content])}
                    for message in question.messages
                ],
                "maxTokens": question.max_tokens,
            } | present(
                systemPrompt=question.system_prompt,
                temperature=question.temperature,
                stopSequences=list(question.stop_sequences) or None,
                modelPreferences=question.model_preferences,
                metadata=question.metadata or None,
            )
            return {"method": "sampling/createMessage", "params": params}
        case Roots():
            return {"method": "roots/list"}


def question_from_wire(wire: Mapping[str, Any]) -> Question:
    """MCP's request as a question.

    Raises:
        WireError: The method is unknown, or something that it needs is missing or malformed.
    """
    params = optional(fields(wire, "a question"), "params", dict) or {}
    try:
        match wire.get("method"):
            case "elicitation/create" if params.get("mode", "form") == "url":
                return UrlElicitation(
                    text(params["message"]), text(params["url"]), text(params.get("elicitationId", ""))
                )
            case "elicitation/create":
                return Elicitation(text(params["message"]), fields(params["requestedSchema"], "a form"))
            case "sampling/createMessage":
                return Sampling(
                    [SamplingMessage(_role(m), _blocks_from_wire(m["content"])) for m in params["messages"]],
                    params["maxTokens"],
                    optional(params, "systemPrompt", str),
                    params.get("temperature"),
                    tuple(optional(params, "stopSequences", list) or ()),
                    optional(params, "modelPreferences", dict),
                    optional(params, "metadata", dict) or {},
                )
            case "roots/list":
                return Roots()
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed question: {abridged(wire)}") from error
    raise WireError(f"a question of an unknown kind: {abridged(wire)}")


def answer_to_wire(answer: Answer) -> Json:
    """An answer as MCP's result of the request that asked."""
    match answer:
        case ElicitationAnswer():
            return {"action": answer.action} | present(content=answer.content)
        case SamplingAnswer():
            content = _one_or_all([block_to_json(block) for block in answer.content])
            return {"role": answer.role, "content": content, "model": answer.model} | present(
                stopReason=answer.stop_reason
            )
        case _:
            return {"roots": [{"uri": root.uri} | present(name=root.name) for root in answer]}


def answer_from_wire(question: Question, wire: Mapping[str, Any]) -> Answer:
    """MCP's result of the request that asked, as the answer to a question.

    Raises:
        WireError: The result is not what the question asks for.
    """
    try:
        match question:
            case Elicitation() | UrlElicitation():
                if wire["action"] not in {"accept", "decline", "cancel"}:
                    raise WireError(f"an elicitation's action is accept, decline or cancel: {abridged(wire)}")
                return ElicitationAnswer(wire["action"], optional(wire, "content", dict))
            case Sampling():
                content, model = _blocks_from_wire(wire["content"]), text(wire["model"])
                return SamplingAnswer(content, model, _role(wire), optional(wire, "stopReason", str))
            case Roots():
                return tuple(Root(text(root["uri"]), optional(root, "name", str)) for root in wire["roots"])
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed answer: {abridged(wire)}") from error


def _role(wire: Mapping[str, Any]) -> Literal["user", "assistant"]:
    if wire["role"] not in {"user", "assistant"}:
        raise WireError(f"a message's role is user or assistant: {abridged(wire)}")
    return cast("Literal['user', 'assistant']", wire["role"])


def _blocks_from_wire(wire: object) -> tuple[Content, ...]:
    return tuple(block_from_json(cast("Json", block)) for block in (wire if isinstance(wire, list) else [wire]))


def _one_or_all(blocks: list[Json]) -> Json | list[Json]:
    return blocks[0] if len(blocks) == 1 else blocks

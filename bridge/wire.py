"""The wire: this package's values as MCP's JSON, and back, both directions side by side.

Plain mappings in and out (the SDK's handlers accept them), the same for server, fast path, client and gateway. Sources:
MCP schema 2025-11-25 and 2026-07-28, ``Tool``, ``CallToolResult``, ``ContentBlock``, ``InputRequests``.
Reading is strict about what it needs and carries the rest: what cannot be read is a `WireError` that names it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bridge.errors import BridgeError
from bridge.tools.content import Audio, File, Image, ResourceLink, Text
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
    from collections.abc import Callable, Mapping

    from bridge.tools.content import Content
    from bridge.tools.questions import Answer, Question

_T = TypeVar("_T")

Json = dict[str, Any]
"""A JSON object."""

STRICT_META_KEY = "io.github.mcp-toolbridge/strict"
"""Where a specification's ``strict`` travels, in ``_meta``: MCP has no field for it."""

_ANNOTATIONS = {
    "title": "title",
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}


class WireError(BridgeError, ValueError):
    """Something that came over the wire is not what the protocol says."""


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
    return wire | _present(
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
    name, schema = wire.get("name"), wire.get("inputSchema")
    if not isinstance(name, str) or not name:
        raise WireError(f"a tool without a name: {_cut(wire)}")
    if not isinstance(schema, dict):
        raise WireError(f"the tool {name!r} has no inputSchema: {_cut(wire)}")
    metadata = dict(_optional(wire, "_meta", dict) or {})
    strict = metadata.pop(STRICT_META_KEY, None)
    hints = _optional(wire, "annotations", dict)
    return ToolSpecification(
        name=name,
        title=_optional(wire, "title", str),
        description=_optional(wire, "description", str),
        parameters=schema,
        output_schema=_optional(wire, "outputSchema", dict),
        annotations=None
        if hints is None
        else ToolAnnotations(**{name: hints[key] for name, key in _ANNOTATIONS.items() if key in hints}),
        metadata=metadata,
        icons=tuple(_optional(wire, "icons", list) or ()),
        strict=strict if isinstance(strict, bool) else None,
    )


def _object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """MCP asks for ``type: object`` at the root; a schema that leaves it out (a bare ``$ref``, say) gets it."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


# --- content ---------------------------------------------------------------------------------------------------------


def content_to_wire(block: Content) -> Json:
    """A block as MCP's ``ContentBlock``."""
    wire = _WRITERS[type(block)](block)
    if block.annotations is not None:
        wire["annotations"] = block.annotations
    if block.metadata is not None:
        wire["_meta"] = block.metadata
    return wire


def content_from_wire(wire: Mapping[str, Any]) -> Content:
    """MCP's ``ContentBlock`` as a block.

    Raises:
        WireError: The block's type is unknown, or something that it needs is missing or malformed.
    """
    if not isinstance(wire, dict):
        raise WireError(f"content that is no object: {_cut(wire)}")
    reader = _READERS.get(wire.get("type", ""))
    if reader is None:
        raise WireError(f"content of an unknown type: {_cut(wire)}")
    carried = {"annotations": _optional(wire, "annotations", dict), "metadata": _optional(wire, "_meta", dict)}
    try:
        return reader(wire, carried)
    except (KeyError, TypeError, AttributeError, Base64Error, ValueError) as error:
        raise WireError(f"malformed content: {_cut(wire)}") from error


def _write_file(block: File) -> Json:
    body = {"text": block.content} if isinstance(block.content, str) else {"blob": b64encode(block.content).decode()}
    resource = {"uri": block.uri, **body} | _present(mimeType=block.mime_type, _meta=block.resource_metadata)
    return {"type": "resource", "resource": resource}


def _write_link(block: ResourceLink) -> Json:
    return {"type": "resource_link", "uri": block.uri, "name": block.name} | _present(
        title=block.title,
        description=block.description,
        mimeType=block.mime_type,
        size=block.size_bytes,
        icons=list(block.icons) or None,
    )


_WRITERS: dict[type, Callable[[Any], Json]] = {
    Text: lambda block: {"type": "text", "text": block.text},
    Image: lambda block: {"type": "image", "data": b64encode(block.data).decode(), "mimeType": block.mime_type},
    Audio: lambda block: {"type": "audio", "data": b64encode(block.data).decode(), "mimeType": block.mime_type},
    File: _write_file,
    ResourceLink: _write_link,
}


def _read_file(wire: Mapping[str, Any], carried: Json) -> File:
    resource = wire["resource"]
    content = _text(resource["text"]) if "text" in resource else _bytes(resource["blob"])
    return File(
        _text(resource["uri"]),
        content,
        _optional(resource, "mimeType", str),
        _optional(resource, "_meta", dict),
        **carried,
    )


def _read_link(wire: Mapping[str, Any], carried: Json) -> ResourceLink:
    return ResourceLink(
        _text(wire["uri"]),
        _text(wire["name"]),
        _optional(wire, "title", str),
        _optional(wire, "description", str),
        _optional(wire, "mimeType", str),
        _optional(wire, "size", int),
        tuple(_optional(wire, "icons", list) or ()),
        **carried,
    )


_READERS: dict[str, Callable[[Mapping[str, Any], Json], Content]] = {
    "text": lambda wire, carried: Text(_text(wire["text"]), **carried),
    "image": lambda wire, carried: Image(_bytes(wire["data"]), _text(wire["mimeType"]), **carried),
    "audio": lambda wire, carried: Audio(_bytes(wire["data"]), _text(wire["mimeType"]), **carried),
    "resource": _read_file,
    "resource_link": _read_link,
}


# --- results ---------------------------------------------------------------------------------------------------------


def result_to_wire(result: ToolExecutionResult) -> Json:
    """A result as MCP's ``CallToolResult``: as content what a model reads, as structured content the whole."""
    shown = result.content if result.model_content is None else result.model_content
    wire: Json = {"content": [content_to_wire(block) for block in shown], "isError": result.is_error}
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
    content = wire.get("content")
    if not isinstance(content, list):
        raise WireError(f"a result without content: {_cut(wire)}")
    return ToolExecutionResult(
        tuple(content_from_wire(block) for block in content),
        wire.get("structuredContent"),
        wire.get("isError") is True,
        metadata=_optional(wire, "_meta", dict) or {},
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
                    {"role": message.role, "content": _one_or_all([content_to_wire(b) for b in message.content])}
                    for message in question.messages
                ],
                "maxTokens": question.max_tokens,
            } | _present(
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
    params = wire.get("params") or {}
    try:
        match wire.get("method"):
            case "elicitation/create" if params.get("mode", "form") == "url":
                return UrlElicitation(params["message"], params["url"], params.get("elicitationId", ""))
            case "elicitation/create":
                return Elicitation(params["message"], params["requestedSchema"])
            case "sampling/createMessage":
                return Sampling(
                    [SamplingMessage(m["role"], _blocks_from_wire(m["content"])) for m in params["messages"]],
                    params["maxTokens"],
                    params.get("systemPrompt"),
                    params.get("temperature"),
                    tuple(params.get("stopSequences") or ()),
                    params.get("modelPreferences"),
                    params.get("metadata") or {},
                )
            case "roots/list":
                return Roots()
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed question: {_cut(wire)}") from error
    raise WireError(f"a question of an unknown kind: {_cut(wire)}")


def answer_to_wire(answer: Answer) -> Json:
    """An answer as MCP's result of the request that asked."""
    match answer:
        case ElicitationAnswer():
            return {"action": answer.action} | _present(content=answer.content)
        case SamplingAnswer():
            content = _one_or_all([content_to_wire(block) for block in answer.content])
            return {"role": answer.role, "content": content, "model": answer.model} | _present(
                stopReason=answer.stop_reason
            )
        case _:
            return {"roots": [{"uri": root.uri} | _present(name=root.name) for root in answer]}


def answer_from_wire(question: Question, wire: Mapping[str, Any]) -> Answer:
    """MCP's result of the request that asked, as the answer to a question.

    Raises:
        WireError: The result is not what the question asks for.
    """
    try:
        match question:
            case Elicitation() | UrlElicitation():
                if wire["action"] not in {"accept", "decline", "cancel"}:
                    raise WireError(f"an elicitation's action is accept, decline or cancel: {_cut(wire)}")
                return ElicitationAnswer(wire["action"], _optional(wire, "content", dict))
            case Sampling():
                return SamplingAnswer(
                    _blocks_from_wire(wire["content"]), wire["model"], wire["role"], wire.get("stopReason")
                )
            case Roots():
                return tuple(Root(_text(root["uri"]), _optional(root, "name", str)) for root in wire["roots"])
    except (KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a malformed answer: {_cut(wire)}") from error


def _blocks_from_wire(wire: object) -> tuple[Content, ...]:
    return tuple(content_from_wire(cast("Json", block)) for block in (wire if isinstance(wire, list) else [wire]))


def _one_or_all(blocks: list[Json]) -> Json | list[Json]:
    return blocks[0] if len(blocks) == 1 else blocks


# --- helpers ---------------------------------------------------------------------------------------------------------


def _present(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _optional(wire: Mapping[str, Any], key: str, kind: type[_T]) -> _T | None:
    value = wire.get(key)
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    raise WireError(f"{key!r} must be {kind.__name__}: {_cut(wire)}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise WireError(f"text was expected: {_cut(value)}")
    return value


def _bytes(value: object) -> bytes:
    return b64decode(_text(value), validate=True)


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"  # noqa: PLR2004 - what a reader can take in

"""Conversion of tool specifications and results to MCP JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, WireError
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.specification import HINTS, ToolAnnotations, ToolSpecification, is_icon
from bridge.tools.tool import ToolExecutionResult
from bridge.types import Json, optional_field, require_object, without_none
from bridge.wire.received import Received

if TYPE_CHECKING:
    from collections.abc import Mapping

STRICT_META_KEY = "io.github.mcp-toolbridge/strict"
"""Key of a specification's ``strict`` in ``_meta``, since MCP has no field for it."""
_MEMBERS = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"})


def forwarded_meta(meta: Mapping[str, Any] | None) -> Json:
    """Return the part of ``_meta`` to forward: a trace context, for example, and all keys that are not MCP's own.

    Keys of the protocol (``progressToken``, ``io.modelcontextprotocol/…``) only concern the sender and receiver of one
    message.

    Args:
        meta: The received ``_meta``, or None.
    """
    return {key: value for key, value in meta.items() if not _is_protocols(key)} if meta else {}


def _is_protocols(key: str) -> bool:
    # The SDK also uses the snake_case form.
    return key in {"progressToken", "progress_token"} or key.startswith("io.modelcontextprotocol/")


def tool_to_wire(specification: ToolSpecification) -> Json:
    """Convert a specification to MCP's ``Tool``."""
    wire: Json = {"name": specification.name, "inputSchema": object_schema(specification.parameters)}
    wire.update(specification.other)
    metadata = dict(specification.metadata)
    if specification.strict is not None:
        metadata[STRICT_META_KEY] = specification.strict
    if (hints := specification.annotations) is not None:
        all_hints = {key: getattr(hints, name) for name, key in HINTS.items()}
        wire["annotations"] = {**hints.other, **{key: value for key, value in all_hints.items() if value is not None}}
    return wire | without_none(
        title=specification.title,
        description=specification.description,
        outputSchema=specification.output_schema,
        icons=list(specification.icons) or None,
        _meta=metadata or None,
    )


def tool_from_wire(wire: Mapping[str, Any]) -> ToolSpecification:
    """Convert MCP's ``Tool`` to a specification, with its schemas unchanged.

    Raises:
        WireError: The name or the input schema is missing or has the wrong type.
    """
    name, schema = require_object(wire, "a tool").get("name"), wire.get("inputSchema")
    if not isinstance(name, str) or not name:
        raise WireError(f"a tool without a name: {short_repr(wire)}")
    if not isinstance(schema, dict) or not isinstance(object_schema(schema)["type"], str):
        raise WireError(f"the tool {name!r} has no inputSchema of type 'object': {short_repr(wire)}")
    metadata = dict(optional_field(wire, "_meta", dict) or {})
    strict = metadata.pop(STRICT_META_KEY, None)
    hints = optional_field(wire, "annotations", dict)
    try:
        return ToolSpecification(
            name=name,
            title=optional_field(wire, "title", str),
            description=optional_field(wire, "description", str),
            parameters=schema if "type" not in schema else object_schema(schema),
            output_schema=optional_field(wire, "outputSchema", dict),
            annotations=None if hints is None else _annotations_from_wire(hints),
            metadata=metadata,
            # Icons are decorative: malformed ones are dropped.
            icons=tuple(filter(is_icon, optional_field(wire, "icons", list) or ())),
            strict=strict if isinstance(strict, bool) else None,
            other={key: value for key, value in wire.items() if key not in _MEMBERS},
        )
    except DefinitionError as error:
        raise WireError(f"an invalid tool: {error}") from error


def _annotations_from_wire(hints: Mapping[str, Any]) -> ToolAnnotations:
    """Convert hints; hints of the wrong type are dropped."""
    valid: dict[str, Any] = {}
    for name, key in HINTS.items():
        if isinstance(value := hints.get(key), str if name == "title" else bool):
            valid[name] = value
    known = HINTS.values()
    return ToolAnnotations(**valid, other={key: value for key, value in hints.items() if key not in known})


def object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a schema that has no type (such as a bare ``$ref``), or several, ``type: object``, since MCP requires it."""
    kind = schema.get("type")
    is_object = "object" in kind if isinstance(kind, list) else not kind
    return {**schema, "type": "object"} if is_object else schema


def result_to_wire(result: ToolExecutionResult) -> Json:
    """Convert a result to MCP's ``CallToolResult``: the model's content, and the complete structured content."""
    if isinstance(result.received, ReceivedResult):
        return result.received.passed_on()
    content = result.content if result.model_content is None else result.model_content
    wire: Json = {"content": [block_to_json(block) for block in content], "isError": result.is_error}
    if result.structured_content is not None:
        wire["structuredContent"] = result.structured_content
    if result.metadata:
        wire["_meta"] = result.metadata
    return wire


def result_from_wire(wire: Mapping[str, Any]) -> ToolExecutionResult:
    """Convert MCP's ``CallToolResult`` to a result.

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


class ReceivedResult(Received):
    """MCP's ``CallToolResult`` of another server."""

    __slots__ = ()

    BODY = frozenset({"content", "isError", "structuredContent"})

    def read(self) -> ToolExecutionResult:
        """Convert it to a result; one that is malformed becomes an error."""
        try:
            return result_from_wire(self)
        except WireError as error:
            return ToolExecutionResult.error(f"the server returned a malformed result: {error}")

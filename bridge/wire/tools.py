"""Tool specifications and results to and from MCP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, WireError
from bridge.text import short_repr
from bridge.tools.content import block_from_json, block_to_json
from bridge.tools.specification import HINTS, ToolAnnotations, ToolSpecification, is_icon
from bridge.tools.tool import ToolExecutionResult
from bridge.types import Json, optional_field, require_object, without_none

if TYPE_CHECKING:
    from collections.abc import Mapping

STRICT_META_KEY = "io.github.mcp-toolbridge/strict"
"""Where a specification's ``strict`` travels, in ``_meta``: MCP has no field for it."""


# --- what goes with a message ----------------------------------------------------------------------------------------


def forwarded_meta(meta: Mapping[str, Any] | None) -> Json:
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

"""Keywords of JSON Schema 2020-12: positions of subschemas, and valid values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SCHEMA = frozenset({"contains", "propertyNames", "not", "if", "then", "else", "contentSchema"})
"""Keywords whose value is a schema."""
BOOLEAN_OR_SCHEMA = frozenset({"additionalProperties", "items", "unevaluatedItems", "unevaluatedProperties"})
"""Keywords whose value is a schema or a boolean."""
SCHEMA_MAP = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""
SCHEMA_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas."""
ANNOTATIONS = ("title", "description")
"""Keywords that are kept in every schema."""

DROPPED = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$dynamicAnchor",
        "$dynamicRef",
        "$id",
        "$recursiveAnchor",
        "$recursiveRef",
        "$schema",
        "$vocabulary",
        "additionalItems",
        "definitions",
    }
)
"""Keywords that are removed in the normal form."""

_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
}

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def is_well_formed(keyword: str, value: Any) -> bool:
    """True if the value is valid for the keyword; any value is valid for an unknown keyword."""
    check = _CHECKS.get(keyword)
    return check is None or check(value)


def annotations_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Annotations of a schema."""
    return {keyword: node[keyword] for keyword in ANNOTATIONS if keyword in node}


def kinds_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """JSON types of a schema or of its enumerated values; empty if unrestricted."""
    named = node.get("type")
    if named is not None:
        return (named,) if isinstance(named, str) else tuple(named)
    choices = [node["const"]] if "const" in node else node.get("enum", [])
    return tuple(dict.fromkeys(kind_of(choice) for choice in choices))


def kind_of(value: Any) -> str:
    """JSON type of a value; a whole number is an integer."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _KINDS.get(type(value), "object")


def fits(value: Any, kinds: tuple[str, ...]) -> bool:
    """True if a value has one of these JSON types."""
    kind = kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_schema_map(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


def _is_schema_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_dependency(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_names, value.values()))


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _are_names(value) and bool(value) and TYPES.issuperset(value)


def _is_choice(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(SCHEMA | BOOLEAN_OR_SCHEMA, _is_schema),
    **dict.fromkeys(SCHEMA_MAP, _is_schema_map),
    **dict.fromkeys(SCHEMA_LIST, _is_schema_list),
    **dict.fromkeys(("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    "multipleOf": _is_positive,
    "required": _are_names,
    "dependentRequired": _is_dependency,
    "type": _is_type,
    "enum": _is_choice,
    "examples": lambda value: isinstance(value, list),
}

"""Keywords of JSON Schema 2020-12: positions of subschemas, and valid values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def is_well_formed(keyword: str, value: Any) -> bool:
    """True if the value is valid for the keyword; any value is valid for an unknown keyword."""
    return keyword not in _VALUES or _VALUES[keyword].validator.isinstance_python(value, strict=True)


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


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("a name is given twice")
    return names


_Schema = dict[Any, Any] | bool
_Names = Annotated[list[str], AfterValidator(_distinct)]
_Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]

_VALUES: dict[str, TypeAdapter[Any]] = {
    **dict.fromkeys(SCHEMA | BOOLEAN_OR_SCHEMA, TypeAdapter(_Schema)),
    **dict.fromkeys(SCHEMA_MAP, TypeAdapter(dict[Any, _Schema])),
    **dict.fromkeys(SCHEMA_LIST, TypeAdapter(Annotated[list[_Schema], Field(min_length=1)])),
    **dict.fromkeys(
        ("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), TypeAdapter(str)
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), TypeAdapter(float)),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        TypeAdapter(NonNegativeInt),
    ),
    **dict.fromkeys(("minContains", "maxContains"), TypeAdapter(NonNegativeInt)),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), TypeAdapter(bool)),
    "multipleOf": TypeAdapter(PositiveFloat),
    "required": TypeAdapter(_Names),
    "dependentRequired": TypeAdapter(dict[Any, _Names]),
    "type": TypeAdapter(_Type | Annotated[list[_Type], Field(min_length=1), AfterValidator(_distinct)]),
    "enum": TypeAdapter(Annotated[list[Any], Field(min_length=1)]),
    "examples": TypeAdapter(list[Any]),
}
"""Valid values of keywords, in strict mode."""

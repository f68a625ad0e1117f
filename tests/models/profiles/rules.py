"""Rules of each provider for JSON Schema, as checks that share no code with the rewriting of schemas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator

Json = dict[str, Any]

SCHEMAS = {
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
}
MAPS = {"$defs", "dependentSchemas", "patternProperties", "properties"}
LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
ROOT_COMBINATORS = {"allOf", "anyOf", "const", "enum", "not", "oneOf"}
PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def nodes(schema: Any, path: str = "$") -> Iterator[tuple[str, Json]]:
    """Yield every schema within a schema, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, value in schema.items():
        if key in SCHEMAS:
            yield from nodes(value, f"{path}.{key}")
        elif key in MAPS:
            for name, each in value.items():
                yield from nodes(each, f"{path}.{key}[{name!r}]")
        elif key in LISTS:
            for number, each in enumerate(value):
                yield from nodes(each, f"{path}.{key}[{number}]")


def _common(schema: Json) -> Iterator[str]:
    Draft202012Validator.check_schema(schema)
    if schema.get("type") != "object":
        yield "the root is not an object"
    for path, node in nodes(schema):
        reference = node.get("$ref")
        if reference is not None and reference.removeprefix("#/$defs/") not in schema.get("$defs", {}):
            yield f"{path} refers to {reference}, which is not there"
        if "$defs" in node and path != "$":
            yield f"{path} has definitions below the root"


def _plain_root(schema: Json) -> Iterator[str]:
    if found := ROOT_COMBINATORS & schema.keys():
        yield f"the root has {found}"
    if not isinstance(schema.get("properties"), dict):
        yield "the root has no properties"


def _plain_names(schema: Json) -> Iterator[str]:
    yield from (f"the property {name!r}" for name in schema["properties"] if not PLAIN_NAME.fullmatch(name))


def openai_lenient(schema: Json) -> Iterator[str]:
    """`functions` of the chat completions API: reasons for 400 for a function without ``strict``."""
    yield from _common(schema)
    yield from _plain_root(schema)
    for path, node in nodes(schema):
        kinds = node.get("type", [])
        if "array" in ([kinds] if isinstance(kinds, str) else kinds) and not isinstance(node.get("items"), dict):
            yield f"{path} is an array without items"


def anthropic_lenient(schema: Json) -> Iterator[str]:
    """`input_schema` of the messages API."""
    yield from _common(schema)
    yield from _plain_root(schema)
    yield from _plain_names(schema)


def bedrock_lenient(schema: Json) -> Iterator[str]:
    """`inputSchema.json` of Converse: the roots that Nova accepts, and those that Claude accepts."""
    yield from anthropic_lenient(schema)
    if extra := schema.keys() - {"type", "properties", "required", "$defs"}:
        yield f"the root has {extra}"


OPENAI_KEYWORDS = {
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
}
ANTHROPIC_KEYWORDS = {
    "additionalProperties",
    "anyOf",
    "description",
    "enum",
    "format",
    "items",
    "minItems",
    "properties",
    "required",
    "title",
    "type",
}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def openai_strict(schema: Json) -> Iterator[str]:
    """Structured Outputs, Supported schemas."""
    yield from _strict(schema, OPENAI_KEYWORDS, FORMATS)
    for path, node in nodes(schema):
        if set(node.get("required", ())) != set(node.get("properties", ())):
            yield f"{path} has properties that are not required"
        if "$ref" in node and len(node) > 1:
            yield f"{path} has more than its reference"
        if re.search(r"\(\?|\\[1-9b]", node.get("pattern", "")):
            yield f"{path} has a pattern that is no plain expression"


def anthropic_strict(schema: Json) -> Iterator[str]:
    """Structured outputs, JSON Schema limitations."""
    yield from _strict(schema, ANTHROPIC_KEYWORDS, FORMATS | {"uri"})
    yield from _plain_names(schema)
    for path, node in nodes(schema):
        if node.get("minItems", 0) > 1:
            yield f"{path} has more than one item"
        if isinstance(node.get("type"), list) and "enum" not in node:
            yield f"{path} has several types"


def _strict(schema: Json, keywords: set[str], formats: set[str]) -> Iterator[str]:
    yield from _common(schema)
    yield from _plain_root(schema)
    for path, node in nodes(schema):
        if extra := node.keys() - keywords:
            yield f"{path} has {extra}"
        if not node.keys() & {"type", "anyOf", "$ref"}:
            yield f"{path} takes any value"
        kinds = node.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if "object" in kinds and node.get("additionalProperties") is not False:
            yield f"{path} is an open object"
        if "array" in kinds and "items" not in node:
            yield f"{path} is an array without items"
        if any(isinstance(each, dict | list) for each in node.get("enum", ())):
            yield f"{path} has choices that are no scalars"
        if not set(node.get("required", ())) <= set(node.get("properties", ())):
            yield f"{path} requires what it does not have"
        if "format" in node and node["format"] not in formats:
            yield f"{path} has the format {node['format']}"
        if node.get("enum") == []:
            yield f"{path} has no choices"


GEMINI_KEYWORDS = {
    "anyOf",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
}
GEMINI_TYPES = {"string", "number", "integer", "boolean", "array", "object"}


def gemini(schema: Json) -> Iterator[str]:
    """Schema of the Gemini API's reference."""
    yield from _common(schema)
    if bad := [name for name in schema.get("properties", {}) if not re.fullmatch(r"\w{1,64}", name, re.ASCII)]:
        yield f"the root has the properties {bad}"
    for path, node in nodes(schema):
        if extra := node.keys() - GEMINI_KEYWORDS:
            yield f"{path} has {extra}"
        if ("type" in node) == ("anyOf" in node):
            yield f"{path} has neither or both of a type and alternatives"
        if "type" in node and node["type"] not in GEMINI_TYPES:
            yield f"{path} has the type {node['type']!r}"
        if (node.get("type") == "array") != ("items" in node):
            yield f"{path} has items and is no array, or the other way round"
        if "enum" in node and not (node["type"] == "string" and all(isinstance(e, str) and e for e in node["enum"])):
            yield f"{path} has choices that are no texts"
        if not set(node.get("required", ())) <= set(node.get("properties", ())):
            yield f"{path} requires what it does not have"


Rule: TypeAlias = Callable[[Json], Iterator[str]]

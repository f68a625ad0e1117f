"""Schemas of an OpenAPI document as JSON Schema 2020-12, for requests or for responses.

References become ``$defs``. The keywords of JSON Schema are kept as they are, those of OpenAPI alone are rewritten or
left out. Objects lose the properties that are read-only in a request, or write-only in a response.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal

from bridge.errors import DefinitionError
from bridge.openapi.document import free_name
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.openapi.document import OpenApiDocument
    from bridge.types import Json

Direction = Literal["request", "response"]
"""Direction in which a value is sent."""

_HIDDEN: dict[Direction, str] = {"request": "readOnly", "response": "writeOnly"}
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLES = (
    *("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_LEFT_OUT = frozenset(
    {
        *("xml", "externalDocs", "discriminator", "example", "nullable", "readOnly", "writeOnly", "$defs"),
        *("definitions", "$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"),
    }
)
_REFUSED = ("$dynamicRef", "$recursiveRef")
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated"})
_BESIDE_REF = _ANNOTATIONS | {"$ref", "nullable", "example"}
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_DEFINITION = "#/$defs/"
_MAX_DEPTH = 64
_MAX_SCHEMAS = 20_000


class SchemaConverter:
    """Converts the schemas of one tool.

    Args:
        document: The document that contains them.
        direction: Direction of the values.
        what: Name of the operation, for messages.
    """

    def __init__(self, document: OpenApiDocument, direction: Direction, what: str) -> None:
        self._document = document
        self._hidden = _HIDDEN[direction]
        self._what = what
        self._names: dict[str, str] = {}
        self._last_numbers: dict[str, int] = {}
        """Taken names of definitions; see `free_name`."""
        self._waiting: list[str] = []
        self._definitions: Json = {}
        self._left = _MAX_SCHEMAS

    def convert(self, schema: Any) -> Any:
        """Convert one schema; definitions that it needs are added to those of `with_definitions`.

        Raises:
            DefinitionError: The schema is invalid or too large, or refers to what is outside of the document.
        """
        converted = self._schema(schema, 0)
        while self._waiting:  # references are not followed recursively
            pointer = self._waiting.pop()
            self._definitions[self._names[pointer]] = self._schema(self._document.at(pointer), 0)
        return converted

    def resolved(self, schema: Any) -> Any:
        """Return a schema, or the one that its references lead to, unconverted; siblings of ``$ref`` are ignored."""
        return self._document.resolved(schema, f"a schema of {self._what}") if isinstance(schema, dict) else schema

    def with_definitions(self, schema: Json) -> Json:
        """Add the definitions that were collected.

        Raises:
            DefinitionError: Schemas consist of each other, so that no validator ends.
        """
        definitions = dict(sorted(self._definitions.items()))
        _refuse_endless(definitions, f"{self._document.source}: {self._what}")
        return {**schema, "$defs": definitions} if definitions else schema

    def is_hidden(self, schema: Any) -> bool:
        """True for a property that is not sent in this direction."""
        if not isinstance(schema, dict):
            return False
        return schema.get(self._hidden) is True or (
            "$ref" in schema and self.resolved(schema).get(self._hidden) is True
        )

    def _problem(self, text: str) -> DefinitionError:
        return DefinitionError(f"{self._document.source}: {self._what} {text}")

    def _schema(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            raise self._problem("has a schema that is too large, or nested too deeply")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise self._problem(f"has a schema that is not an object: {short_repr(schema)}")
        if refused := next((key for key in _REFUSED if key in schema), None):
            raise self._problem(f"has a schema with {refused!r}, which is not supported; use '$ref'")
        if "$ref" in schema and self._document.is_3_0:
            schema = {key: value for key, value in schema.items() if key in _BESIDE_REF}
        converted = self._converted(schema, depth)
        if isinstance(schema.get("properties"), dict):
            self._hide(schema, converted)
        if "example" in schema and "examples" not in schema:
            converted["examples"] = [schema["example"]]
        return self._with_null(schema, converted) if self._document.is_3_0 else converted

    def _converted(self, schema: Mapping[str, Any], depth: int) -> Json:
        converted = {
            key: self._keyword(key, value, depth)
            for key, value in schema.items()
            if key not in _LEFT_OUT and not key.startswith("x-")
        }
        for exclusive, bound in _BOUNDS.items():  # of OpenAPI 3.0: a boolean beside the bound
            if isinstance(converted.get(exclusive), bool) and converted.pop(exclusive) and bound in converted:
                converted[exclusive] = converted.pop(bound)
        return converted

    def _keyword(self, key: str, value: Any, depth: int) -> Any:
        if key == "$ref":
            return self._reference(value)
        if key in _MAPS and isinstance(value, dict):
            return {name: self._schema(each, depth + 1) for name, each in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self._schema(each, depth + 1) for each in value]
        if key in _SINGLES and isinstance(value, dict | bool):
            return self._schema(value, depth + 1)
        return value

    def _reference(self, pointer: Any) -> str:
        self._document.at(pointer)
        if pointer not in self._names:
            self._names[pointer] = self._definition_name(pointer)
            self._waiting.append(pointer)
        return _DEFINITION + self._names[pointer]

    def _definition_name(self, pointer: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", pointer.rpartition("/")[2]).strip("_") or "root"
        return free_name(name, self._last_numbers)

    def _hide(self, schema: Mapping[str, Any], converted: Json) -> None:
        # A list, because `required` of a malformed document may have objects, which have no hash.
        hidden = [name for name, each in schema["properties"].items() if self.is_hidden(each)]
        if not hidden:
            return
        converted["properties"] = {name: each for name, each in converted["properties"].items() if name not in hidden}
        if isinstance(required := converted.get("required"), list):
            converted["required"] = [name for name in required if name not in hidden]

    def _with_null(self, schema: Mapping[str, Any], converted: Json) -> Json:
        """Express ``nullable`` of OpenAPI 3.0."""
        if schema.get("nullable") is not True:
            return converted
        if "enum" in converted and isinstance(converted["enum"], list) and None not in converted["enum"]:
            converted["enum"] = [*converted["enum"], None]
        if converted.keys() & {"$ref", "allOf", "anyOf", "oneOf", "not"}:
            outside = {key: value for key, value in converted.items() if key in _ANNOTATIONS}
            inside = {key: value for key, value in converted.items() if key not in _ANNOTATIONS}
            return {**outside, "anyOf": [inside, {"type": "null"}]}
        if isinstance(kind := converted.get("type"), str):
            converted["type"] = [kind, "null"]
        return converted


def _refuse_endless(definitions: Mapping[str, Any], what: str) -> None:
    """Refuse definitions that apply each other to the same value; raises `DefinitionError`."""
    try:
        TopologicalSorter({name: set(_applied(schema)) for name, schema in definitions.items()}).prepare()
    except CycleError as error:
        names = ", ".join(map(repr, error.args[1][:5]))
        raise DefinitionError(f"{what} has schemas that consist of each other: {names}") from None


def _applied(schema: Any) -> Iterator[str]:
    """Names of the definitions that a schema applies to its value itself, not to a part of it."""
    if not isinstance(schema, dict):
        return
    if isinstance(pointer := schema.get("$ref"), str):
        yield pointer.removeprefix(_DEFINITION)
    for key in _IN_PLACE:
        value = schema.get(key)
        for each in value if isinstance(value, list) else [value]:
            yield from _applied(each)

"""Plain schemas: those that say no more than most output schemas do, as a function that proves a value.

A general validator walks its schema anew for each value. Here the common keywords are read once; what a proof cannot
show, of a schema or of a value, is left to the general validator.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.client.bounded_schema import Steps

    Proof: TypeAlias = Callable[[Any, Steps], bool]
    """True only where the value surely conforms; False where that is for the general validator to say. It raises
    `UnjudgedError` where it takes more than the steps."""

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS: Final = "#/$defs/"
MAX_SCHEMAS: Final = 2_000
"""How many schemas are read, each as often as it is referred to."""
_SAYS_NOTHING: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format"}
)
"""Keywords that no value breaks; ``format`` is one, unless a validator is told to assert it."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
"""What a JSON parser makes of each; an integer that is written ``1.0`` is for the general validator."""


class _NotPlainError(Exception):
    """A schema that says more than is read here."""


def proof_of(schema: Mapping[str, Any]) -> Proof | None:
    """What proves that values conform to a schema.

    Args:
        schema: A JSON Schema.

    Returns:
        The proof; None where the schema says what is not read here, refers to itself, or is too large when its
        references are written out.
    """
    if schema.get("$schema", _DRAFT) != _DRAFT:
        return None
    rest = {key: value for key, value in schema.items() if key not in {"$schema", "$defs"}}
    try:
        return _Reader(schema.get("$defs", {})).proof(rest, ())
    except (_NotPlainError, AttributeError, TypeError, RecursionError):
        return None


class _Reader:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._left = MAX_SCHEMAS

    def proof(self, schema: Any, within: tuple[str, ...]) -> Proof:
        self._left -= 1
        if self._left < 0:
            raise _NotPlainError
        if schema is True:
            return lambda _, __: True
        keywords = schema.keys() - _SAYS_NOTHING
        if keywords == {"$ref"}:
            name = schema["$ref"].removeprefix(_DEFINITIONS)
            is_pointer = schema["$ref"].startswith(_DEFINITIONS) and not set("/~%") & set(name)
            if not is_pointer or name in within or name not in self._definitions:
                raise _NotPlainError
            return self.proof(self._definitions[name], (*within, name))
        if keywords == {"anyOf"}:
            return _any_of([self.proof(choice, within) for choice in schema["anyOf"]])
        if not keywords:
            return lambda _, __: True
        return self._of_type(schema, keywords, within)

    def _of_type(self, schema: Mapping[str, Any], keywords: set[str], within: tuple[str, ...]) -> Proof:
        said = schema.get("type")
        if said == "object" and keywords <= {"type", "properties", "required", "additionalProperties"}:
            fields = {key: self.proof(value, within) for key, value in schema.get("properties", {}).items()}
            others = schema.get("additionalProperties", True)
            other = (lambda _, __: False) if others is False else self.proof(others, within)
            return _object(fields, frozenset(schema.get("required", ())), other)
        if said == "array" and keywords <= {"type", "items"}:
            return _array(self.proof(schema.get("items", True), within))
        names: list[Any] = said if isinstance(said, list) else [said]
        if keywords != {"type"} or not all(isinstance(name, str) and name in _TYPES for name in names):
            raise _NotPlainError
        kinds = frozenset(kind for name in names for kind in _TYPES[name])
        return lambda value, _: type(value) in kinds


def _any_of(choices: list[Proof]) -> Proof:
    def conforms(value: Any, steps: Steps) -> bool:
        steps.spend(len(choices))
        return any(choice(value, steps) for choice in choices)

    return conforms


def _array(item: Proof) -> Proof:
    def conforms(value: Any, steps: Steps) -> bool:
        if type(value) is not list:
            return False
        steps.spend(len(value))
        return all(map(item, value, repeat(steps)))

    return conforms


def _object(fields: Mapping[str, Proof], required: frozenset[str], other: Proof) -> Proof:
    cost = 1 + len(required) // 8

    def conforms(value: Any, steps: Steps) -> bool:
        if type(value) is not dict:
            return False
        steps.spend(cost + len(value))
        return required <= value.keys() and all(fields.get(key, other)(field, steps) for key, field in value.items())

    return conforms

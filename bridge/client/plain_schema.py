"""Plain schemas: those that say no more than most output schemas do, as a function that proves a value.

A general validator walks its schema anew for each value. Here the common keywords are read once; what a proof cannot
show, of a schema or of a value, is left to the general validator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Proof: TypeAlias = Callable[[Any], bool]
    """True only where the value surely conforms; False where that is for the general validator to say."""

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS: Final = "#/$defs/"
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
        schema: A valid JSON Schema.

    Returns:
        The proof; None where the schema says what is not read here, or refers to itself.
    """
    if schema.get("$schema", _DRAFT) != _DRAFT:
        return None
    try:
        rest = {key: value for key, value in schema.items() if key not in {"$schema", "$defs"}}
        return _proof(rest, schema.get("$defs", {}), ())
    except (_NotPlainError, AttributeError, TypeError):
        return None


def _proof(schema: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Proof:
    if schema is True:
        return lambda _: True
    keywords = schema.keys() - _SAYS_NOTHING
    if keywords == {"$ref"}:
        name = schema["$ref"].removeprefix(_DEFINITIONS)
        is_pointer = schema["$ref"].startswith(_DEFINITIONS) and not set("/~%") & set(name)
        if not is_pointer or name in within or name not in definitions:
            raise _NotPlainError
        return _proof(definitions[name], definitions, (*within, name))
    if keywords == {"anyOf"}:
        choices = [_proof(choice, definitions, within) for choice in schema["anyOf"]]
        return lambda value: any(conforms(value) for conforms in choices)
    if not keywords:
        return lambda _: True
    return _proof_of_type(schema, keywords, definitions, within)


def _proof_of_type(
    schema: Mapping[str, Any], keywords: set[str], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> Proof:
    said = schema.get("type")
    if said == "object" and keywords <= {"type", "properties", "required", "additionalProperties"}:
        return _proof_of_object(schema, definitions, within)
    if said == "array" and keywords <= {"type", "items"}:
        item = _proof(schema.get("items", True), definitions, within)
        return lambda value: type(value) is list and all(map(item, value))
    names: list[Any] = said if isinstance(said, list) else [said]
    if keywords != {"type"} or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise _NotPlainError
    kinds = frozenset(kind for name in names for kind in _TYPES[name])
    return lambda value: type(value) in kinds


def _proof_of_object(schema: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]) -> Proof:
    fields = {key: _proof(value, definitions, within) for key, value in schema.get("properties", {}).items()}
    required = frozenset(schema.get("required", ()))
    others = schema.get("additionalProperties", True)
    other = (lambda _: False) if others is False else _proof(others, definitions, within)

    def conforms(value: Any) -> bool:
        return (
            type(value) is dict
            and required <= value.keys()
            and all(fields.get(key, other)(field) for key, field in value.items())
        )

    return conforms

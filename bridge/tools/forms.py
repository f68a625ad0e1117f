"""Forms: what a user is asked to fill in, as MCP can carry it, and the reading of the answers.

A form is made of a type or a JSON Schema. MCP's forms are flat: each field is text, a number, a boolean, a choice among
texts, or a list of choices (MCP 2025-11-25, Elicitation, ``PrimitiveSchemaDefinition``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from inspect import isroutine
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from bridge.errors import DefinitionError, ToolError, WireError
from bridge.text import clip, short_repr
from bridge.tools.form_fields import FORMATS, choices_of, compiled_pattern, form_fields

if TYPE_CHECKING:
    from bridge.tools.form_fields import FormField
    from bridge.types import Json

VALUE = "value"
"""Name of the only field of a form that is made of a scalar type."""

_NULL = {"type": "null"}
_SCALARS = ("string", "integer", "number", "boolean")
_FIELDS = (
    "a field is text, a number, a boolean, one of several texts (an Enum or Literal) or a list of them; ask for the "
    "rest in questions of its own"
)
_FORM = (
    "give a type (str, bool, an Enum, a dataclass, a pydantic model), a list of texts to choose from, or a JSON Schema"
)
_CHOICES = frozenset({"enum", "oneOf", "anyOf"})
_UNCHECKED = frozenset({
    "$ref", "$dynamicRef", "allOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies",
    "patternProperties", "propertyNames", "minProperties", "maxProperties", "prefixItems", "contains",
    "unevaluatedProperties", "unevaluatedItems",
})  # fmt: skip
"""Keywords of JSON Schema that restrict values, and that no form of MCP has."""
_MAX_PROBLEMS = 5
_MAX_PROBLEM_CHARS = 500


class FormError(DefinitionError, ToolError):
    """A form cannot be carried by MCP; the message names its field and the remedy, also for the client."""


class MisfitError(WireError):
    """An answer does not fit its question; the message says why, for the user."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A form."""

    schema: Mapping[str, Any]
    """JSON Schema of an object with flat properties."""
    _read: Callable[[Mapping[str, Any]], Any]

    @classmethod
    def of(cls, given: object) -> Form:
        """Return the form of a type, a JSON Schema, a list of texts to choose from, or None for a form without fields.

        A scalar type becomes a form with one field, ``value``.

        Raises:
            FormError: MCP cannot carry it.
        """
        if given is None:
            return cls.of_schema({})
        if isinstance(given, Mapping):
            return cls.of_schema(given)
        if isinstance(given, list | tuple):
            if not (given and all(isinstance(each, str) for each in given) and len({*given}) == len(given)):
                raise FormError(f"{short_repr(given)} is not a list of different texts to choose from; {_FORM}")
            return _form_of_type(Literal[tuple(given)])
        if isinstance(given, str | bytes | int | float) or isroutine(given):
            raise FormError(f"{short_repr(given)} is not a form; {_FORM}")
        try:
            return _form_of_type(given)
        except TypeError:  # not hashable
            return _form_of_type.__wrapped__(given)

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any]) -> Form:
        """Return the form of a JSON Schema; one without properties is completed, others are sent as they are.

        Raises:
            FormError: MCP cannot carry it.
        """
        try:
            return _form_of_schema(to_json(schema))
        except ValueError as error:
            raise FormError(f"{short_repr(schema)} cannot be written as JSON; {_FORM}") from error

    @classmethod
    def _checked(cls, schema: Mapping[str, Any]) -> Form:
        if schema in ({}, {"type": "object"}):
            return cls.received({"type": "object", "properties": {}})
        properties = schema.get("properties")
        if schema.get("type") != "object" or not isinstance(properties, Mapping):
            raise FormError(
                f'{short_repr(schema)} is not a schema of a form, which has "type": "object" and "properties"; {_FORM}'
            )
        for name, each in properties.items():
            _check_property(name, each)
        _check_keywords("a form", schema, _UNCHECKED | _CHOICES)
        required = schema.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
            raise FormError(f'"required" of a form must be a list of its fields, not {short_repr(required)}')
        return cls.received(schema)

    @classmethod
    def received(cls, schema: Mapping[str, Any]) -> Form:
        """Return the form of another server's question; its fields are checked as far as they are MCP's."""
        fields = cache(lambda: form_fields(schema))
        is_closed = schema.get("additionalProperties") is False
        return cls(schema, lambda content: _read_fields(fields(), content, is_closed=is_closed))

    def read(self, content: Mapping[str, Any] | None) -> Any:
        """Return the data of an accepted form: a value of its type, or for a JSON Schema the fields that it names.

        Raises:
            MisfitError: The content does not fit.
        """
        return self._read(content or {})


@lru_cache(256)
def _form_of_schema(text: bytes) -> Form:
    """Return the form of a JSON Schema, which is asked again and again."""
    return Form._checked(from_json(text))  # noqa: SLF001 - of this module


@lru_cache(256)
def _form_of_type(kind: Any) -> Form:
    from bridge.tools.schema.generator import (  # noqa: PLC0415 - only needed for forms of types
        internal_schema,
        public_schema,
        schema_error_text,
    )
    from bridge.tools.schema.json_schema import inlined  # noqa: PLC0415 - as above

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        schema: Json = inlined(public_schema(internal_schema(adapter)))
    except Exception as error:
        # Beside pydantic's errors, there are those of its hooks in the type, and of a value that is no type.
        raise FormError(f"{short_repr(kind)} cannot be a form: {schema_error_text(error)}; {_FORM}") from error
    is_scalar = schema.get("type") != "object"
    if is_scalar:
        schema = {"type": "object", "properties": {VALUE: schema}, "required": [VALUE]}
    elif "properties" not in schema:
        raise FormError(f"{kind!r} cannot be a form, since its fields are not known; {_FORM}")
    nullable = {name for name, each in schema["properties"].items() if _NULL in each.get("anyOf", ())}
    properties = {name: _carried(each) for name, each in schema["properties"].items()}
    required = [name for name in schema.get("required", ()) if name not in nullable]
    nulls = dict.fromkeys(name for name in schema.get("required", ()) if name in nullable)
    form = {**schema, "properties": properties, "required": required}
    if not required:
        del form["required"]
    try:
        Form.of_schema(form)
    except FormError as error:
        raise FormError(f"{kind!r} cannot be a form: {error}") from None

    choices = [each for each in form_fields(form) if each.choices]

    def read(content: Mapping[str, Any]) -> Any:
        given = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in content.items()
            if value is not None or name in required
        }
        given = {**nulls, **given}
        if is_scalar and VALUE not in given:
            raise MisfitError(f"{VALUE}: is required")
        try:
            data = adapter.validate_json(to_json(given[VALUE] if is_scalar else given), strict=True)
        except ValidationError as error:
            raise MisfitError(_problems(error, [VALUE] if is_scalar else [])) from error
        except ValueError as error:
            raise MisfitError(f"it cannot be written as JSON: {error}") from error
        _read_fields([each for each in choices if each.name in given], given)  # pydantic takes true for the choice 1
        return data

    return Form(form, read)


def _carried(schema: Json) -> Json:
    """Return the schema of a field as MCP has it: without null, constants, and formats that it does not have."""
    variants = [each for each in schema.get("anyOf", ()) if each != _NULL]
    if len(variants) == 1:
        schema = {**{key: value for key, value in schema.items() if key != "anyOf"}, **variants[0]}
    schema = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if schema.get("type") == "string" and schema.get("format") not in FORMATS:
        schema.pop("format", None)
    if isinstance(schema.get("items"), dict):
        schema["items"] = _carried(schema["items"])
    return schema


def _check_keywords(what: str, schema: Mapping[str, Any], unchecked: frozenset[str] = _UNCHECKED) -> None:
    if unchecked := unchecked & schema.keys():
        raise FormError(
            f"{min(unchecked)!r} of {what} cannot be checked; leave it out, and check the answer in the tool"
        )


def _check_property(name: object, schema: Any) -> None:
    """Raise an error for a field that MCP cannot carry.

    Raises:
        FormError: It is one.
    """
    kind, choices = (schema.get("type"), choices_of(schema)) if isinstance(schema, dict) else (None, [])
    if not isinstance(name, str) or not isinstance(schema, dict):
        raise FormError(f"the field {name!r} of a form has the schema {short_repr(schema)}; {_FIELDS}")
    is_choice = bool(choices) and (kind is None or kind in _SCALARS)
    is_free = kind in _SCALARS and not schema.keys() & _CHOICES
    if not (is_choice or is_free or (kind == "array" and choices)):
        is_typed = kind is not None and kind not in _SCALARS
        what = (
            "a list without choices" if kind == "array" else f"of the type {kind!r}" if is_typed else short_repr(schema)
        )
        raise FormError(f"the field {name!r} of a form is {what}; {_FIELDS}")
    _check_keywords(f"the field {name!r}", schema)
    pattern = schema.get("pattern")
    if pattern is not None and (not isinstance(pattern, str) or compiled_pattern(pattern) is None):
        raise FormError(
            f"the pattern {short_repr(pattern)} of the field {name!r} cannot be checked; write it without look-around "
            "and back references, or check the text in the tool"
        )


def _read_fields(fields: Sequence[FormField], content: Mapping[str, Any], *, is_closed: bool = False) -> dict[str, Any]:
    known = {field.name for field in fields}
    problems = [f"{clip(name)}: is not asked for" for name in content if is_closed and name not in known]
    for field in fields:
        value = content.get(field.name)
        if value is None and (field.name not in content or not field.is_required):
            problem = "is required" if field.is_required else None
        else:
            problem = field.problem(value)
        if problem is not None:
            problems.append(f"{field.name}: {problem}")
    if problems:
        raise MisfitError(clip("; ".join(problems[:_MAX_PROBLEMS]), _MAX_PROBLEM_CHARS))
    return {name: value for name, value in content.items() if name in known}  # what nobody asked for is not checked


def _problems(error: ValidationError, path: list[str]) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_PROBLEMS]
    texts = (f"{'.'.join(map(str, [*path, *each['loc']])) or 'the form'}: {each['msg']}" for each in found)
    return clip("; ".join(texts), _MAX_PROBLEM_CHARS)

"""JSON Schema (2020-12) from Python types, by pydantic, without the noise and with every description there is.

Two readings of one generation: the *internal* schema tells the repair of arguments what an enum's members are called,
under `bridge.tools.coercion.MEMBERS`; the *published* one is what callers see.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from bridge.errors import DefinitionError
from bridge.tools.coercion import MEMBERS
from bridge.tools.schema.annotations import attribute_descriptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import TypeAdapter
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

_CLASS, _MEMBERS_DESCRIBED = "x-bridge-class", "x-bridge-described"
"""What the generator leaves for its last step: pydantic adds titles and descriptions of its own after each hook."""

MADE_HERE = "bridge.tools"
"""The module of types that are made of a function's parameters: no source describes them."""

TOP_LEVEL = ConfigDict(allow_inf_nan=False, ser_json_bytes="base64", val_json_bytes="base64")
"""How values are read that stand directly among a tool's parameters or results."""

ExtraArguments = Literal["forbid", "ignore"]
"""What happens to arguments that are no parameters: the call is refused, or they are left out."""

SCHEMA_ERRORS = (PydanticUserError, PydanticUndefinedAnnotation, TypeError)
"""What pydantic raises for a type that it cannot validate or describe."""


_REFUSED = re.compile(
    r"Unable to generate pydantic-core schema for (?P<type>.+?)\. Set `"
    r"|Cannot generate a JsonSchema for core_schema\.(?P<kind>\w+?)Schema(?: \((?P<instances>.+)\))?$"
)
_REMEDY = "take what JSON can carry (text, a number, a list, a dataclass, a pydantic model) and make the object of it"


class _Generator(GenerateJsonSchema):
    """pydantic's generator, without titles made from names, with descriptions read from docstrings."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base declares it

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:  # noqa: ARG002 - the base's
        """Keep the order in which things were declared."""
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the base's signature
        """Leave out titles that only repeat names."""
        return False

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """Tidy up after everything else."""
        generated = super().generate(schema, mode)
        result: JsonSchemaValue = _tidied(generated, generated.get("$defs", {}))
        return result

    def encode_default(self, dft: Any) -> Any:
        """Leave out defaults that JSON cannot show: what is not finite."""
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from error
        return value

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Say base64 in the words of JSON Schema: both alphabets are read, the one for URLs is written."""
        result = super().bytes_schema(schema)
        if result.get("format") == "base64url":
            del result["format"]
            result["contentEncoding"] = "base64" if self.mode == "validation" else "base64url"
        return result

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """Say what a decimal's text is, in the word of OpenAPI's registry of formats."""
        result = super().decimal_schema(schema)
        for alternative in result.get("anyOf", [result]):
            if alternative.get("type") == "string":
                alternative["format"] = "decimal"
        return result

    def generator_schema(self, schema: core_schema.GeneratorSchema) -> JsonSchemaValue:
        """Refuse what pydantic reads lazily, each item unchecked until the function comes to it."""
        if self.mode == "validation":
            raise PydanticInvalidForJsonSchema("an iterable is read lazily and cannot be checked before; use list[…]")
        return super().generator_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        """Add what the members are called, and what each is for where a docstring follows it."""
        kind = schema["cls"]
        values = {name: to_jsonable_python(member.value) for name, member in kind.__members__.items()}
        described = [
            f"- {values[name]}: {text}" for name, text in attribute_descriptions(kind).items() if name in values
        ]
        result = {**super().enum_schema(schema), MEMBERS: values, _CLASS: kind.__name__}
        result["enum"] = list({to_json(value): value for value in result["enum"]}.values())  # aliases come twice
        return {**result, _MEMBERS_DESCRIBED: "\n".join(described)} if described else result

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe fields by the docstrings that follow them."""
        keys = {name: alias_of(field) or name for name, field in schema["cls"].model_fields.items()}
        return _described(super().model_schema(schema), schema["cls"], keys)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Describe fields by the docstrings that follow them."""
        return _described(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Describe items by the docstrings that follow them."""
        result = super().typed_dict_schema(schema)
        kind = schema.get("cls")
        return _described(result, kind) if kind is not None and kind.__module__ != MADE_HERE else result


def _described(result: JsonSchemaValue, kind: type, keys: Mapping[str, str] | None = None) -> JsonSchemaValue:
    properties = result.get("properties", {})
    if any("description" not in item for item in properties.values()):
        for name, text in attribute_descriptions(kind).items():
            item = properties.get(keys.get(name, name) if keys else name)
            if item is not None:
                item.setdefault("description", text)
    return {**result, _CLASS: kind.__name__}


def _tidied(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Finish what pydantic has generated.

    Take out titles that repeat the class, let the description of an enum end with its members, and name the keys of a
    dict as they stand in JSON, which are always texts.
    """
    if isinstance(schema, list):
        return [_tidied(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {
        key: _tidied(value, definitions) for key, value in schema.items() if key not in {_CLASS, _MEMBERS_DESCRIBED}
    }
    if _CLASS in schema and tidy.get("title") == schema[_CLASS]:
        del tidy["title"]
    if _MEMBERS_DESCRIBED in schema:
        tidy["description"] = "\n".join(filter(None, [tidy.get("description"), schema[_MEMBERS_DESCRIBED]]))
    if isinstance(names := tidy.get("propertyNames"), dict):
        names = definitions.get(str(names.get("$ref")).removeprefix("#/$defs/"), names)
        if not all(isinstance(value, str) for value in names.get("enum", ())):
            tidy["propertyNames"] = {"enum": [v if isinstance(v, str) else to_json(v).decode() for v in names["enum"]]}
    return tidy


def alias_of(field: FieldInfo) -> str | None:
    """The name in JSON of a field; None where it is the field's own."""
    return field.validation_alias if isinstance(field.validation_alias, str) else field.alias


def internal_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The schema of what the adapter accepts, with the members of enums under `MEMBERS`.

    Raises:
        PydanticUserError: The type has no JSON Schema.
    """
    return adapter.json_schema(schema_generator=_Generator)


def output_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The published schema of what the adapter writes.

    Raises:
        PydanticUserError: The type has no JSON Schema.
    """
    schema: dict[str, Any] = public_schema(adapter.json_schema(schema_generator=_Generator, mode="serialization"))
    return schema


def public_schema(schema: Any) -> Any:
    """A copy of an internal schema for callers."""
    if isinstance(schema, dict):
        return {key: public_schema(value) for key, value in schema.items() if key != MEMBERS}
    if isinstance(schema, list):
        return [public_schema(item) for item in schema]
    return schema


def schema_error_text(error: Exception) -> str:
    """What is wrong with a type, on one line: pydantic's words without its link, and without advice on extending it."""
    if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
        return "Python before 3.12 does not tell all of a typing.TypedDict; make it of typing_extensions.TypedDict"
    said = " ".join(str(error).partition("\nFor further information")[0].split())
    if refused := _REFUSED.match(said):
        return f"{refused['type'] or refused['instances'] or refused['kind'].lower()}; {_REMEDY}"
    return said


def schema_of_type(kind: Any) -> dict[str, Any]:
    """See `bridge.tools.schema.json_schema.schema_of`."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - beside its only use

    try:
        schema: dict[str, Any] = public_schema(internal_schema(TypeAdapter(kind)))
    except SCHEMA_ERRORS as error:
        raise DefinitionError(f"{kind!r} has no JSON Schema: {schema_error_text(error)}") from error
    return schema

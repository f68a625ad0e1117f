"""JSON Schema for tools: built by hand, or read from a type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Schema: TypeAlias = "Mapping[str, Any] | JsonObjectSchema"


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a type.

    Docstrings of classes and attributes become descriptions, constraints are published, recursion is by ``$ref``.

    Args:
        kind: Any type that pydantic knows: a model, a dataclass, an enum, ``list[int]``, …

    Raises:
        DefinitionError: The type has no JSON Schema.
    """
    from bridge.tools.schema_generator import schema_of_type  # noqa: PLC0415 - building by hand needs no pydantic

    return schema_of_type(kind)


class JsonObjectSchema:
    """Builds the JSON Schema of an object, for a tool's parameters by hand (LangChain4j's JsonObjectSchema).

        JsonObjectSchema("An order.").string("sku").integer("count", minimum=1).required("sku").build()

    Every property is optional unless `required` names it. Keywords of JSON Schema may be added to each, as in
    ``.string("sku", pattern="^[A-Z]+$")``.

    Args:
        description: What the object is.
    """

    def __init__(self, description: str | None = None) -> None:
        self._description = description
        self._properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []
        self._definitions: dict[str, dict[str, Any]] = {}
        self._additional_properties: bool | None = None

    def string(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a text."""
        return self._add(name, {"type": "string"}, description, keywords)

    def integer(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a whole number."""
        return self._add(name, {"type": "integer"}, description, keywords)

    def number(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a number."""
        return self._add(name, {"type": "number"}, description, keywords)

    def boolean(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a truth value."""
        return self._add(name, {"type": "boolean"}, description, keywords)

    def enum(self, name: str, values: Sequence[Any], description: str | None = None, **keywords: Any) -> Self:
        """Add a choice among JSON values.

        Raises:
            DefinitionError: There is nothing to choose.
        """
        if not values or isinstance(values, str):
            raise DefinitionError(f"the enum {name!r} needs a list of values, not {values!r}")
        texts = {"type": "string"} if all(isinstance(value, str) for value in values) else {}
        return self._add(name, {**texts, "enum": list(values)}, description, keywords)

    def array(self, name: str, items: Schema, description: str | None = None, **keywords: Any) -> Self:
        """Add a list, all of whose items follow one schema."""
        return self._add(name, {"type": "array", "items": self._nested(items)}, description, keywords)

    def object(self, name: str, schema: Schema, description: str | None = None, **keywords: Any) -> Self:
        """Add an object within the object."""
        return self._add(name, self._nested(schema), description, keywords)

    def reference(self, name: str, definition: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a property that follows a `definition`, which may come later and may refer to itself."""
        return self._add(name, reference_to(definition), description, keywords)

    def any_of(self, name: str, schemas: Sequence[Schema], description: str | None = None, **keywords: Any) -> Self:
        """Add a property that follows at least one of several schemas."""
        return self._add(name, {"anyOf": [self._nested(schema) for schema in schemas]}, description, keywords)

    def raw(self, name: str, schema: Mapping[str, Any]) -> Self:
        """Add a property with a JSON Schema as it is."""
        return self._add(name, dict(schema), None, {})

    def required(self, *names: str) -> Self:
        """Say which properties must be given."""
        self._required.extend(name for name in names if name not in self._required)
        return self

    def definition(self, name: str, schema: Schema) -> Self:
        """Add a schema that `reference` and `reference_to` can point to."""
        self._define(name, self._nested(schema))
        return self

    def additional_properties(self, allowed: bool) -> Self:
        """Say whether properties that are not listed may be given."""
        self._additional_properties = allowed
        return self

    def build(self) -> dict[str, Any]:
        """The schema.

        Raises:
            DefinitionError: A required property does not exist.
        """
        for name in self._required:
            if name not in self._properties:
                raise DefinitionError(f"the required property {name!r} is not among {list(self._properties)}")
        schema: dict[str, Any] = {"type": "object"}
        if self._description is not None:
            schema["description"] = self._description
        schema["properties"] = dict(self._properties)
        if self._required:
            schema["required"] = list(self._required)
        if self._additional_properties is not None:
            schema["additionalProperties"] = self._additional_properties
        if self._definitions:
            schema["$defs"] = dict(self._definitions)
        return schema

    def _nested(self, schema: Schema) -> dict[str, Any]:
        if not isinstance(schema, JsonObjectSchema):
            return dict(schema)
        inner = schema.build()
        for name, definition in inner.pop("$defs", {}).items():
            self._define(name, definition)
        return inner

    def _define(self, name: str, schema: dict[str, Any]) -> None:
        if self._definitions.setdefault(name, schema) != schema:
            raise DefinitionError(f"the definition {name!r} is given twice; give one of them another name")

    def _add(self, name: str, schema: dict[str, Any], description: str | None, keywords: Mapping[str, Any]) -> Self:
        if name in self._properties:
            raise DefinitionError(f"the property {name!r} is given twice; give one of them another name")
        described = {} if description is None else {"description": description}
        self._properties[name] = {**schema, **described, **keywords}
        return self


def reference_to(definition: str) -> dict[str, Any]:
    """The schema that points to a definition at the root: for items, alternatives, and recursion."""
    return {"$ref": "#/$defs/" + definition.replace("~", "~0").replace("/", "~1")}

"""JSON Schema of tools, built by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFINITIONS = "#/$defs/"

Schema: TypeAlias = Mapping[str, Any]


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Replace references to the schema's own definitions by their content.

    Recursive definitions and the references to them are kept.
    """
    definitions = schema.get("$defs", {})
    recursive = {name for name in definitions if name in _reachable(name, definitions)}

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = _definition_named_in(node)
        rest = {key: inline(value) for key, value in node.items() if name is None or key != "$ref"}
        if name is None:
            return rest
        if name in recursive or name not in definitions:
            return {"$ref": node["$ref"], **rest}
        return {**inline(definitions[name]), **rest}

    result: dict[str, Any] = inline({key: value for key, value in schema.items() if key != "$defs"})
    if recursive:
        result["$defs"] = {name: inline(definitions[name]) for name in definitions if name in recursive}
    return result


def _reachable(start: str, definitions: Mapping[str, Any]) -> set[str]:
    """Return the definitions that a definition refers to, directly or indirectly."""
    reachable: set[str] = set()
    pending: list[Any] = [definitions[start]]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            name = _definition_named_in(node)
            if name is not None and name in definitions and name not in reachable:
                reachable.add(name)
                pending.append(definitions[name])
        pending.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return reachable


def _definition_named_in(node: Mapping[str, Any]) -> str | None:
    reference = node.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
        return None
    return reference.removeprefix(_DEFINITIONS).replace("~1", "/").replace("~0", "~")


class JsonObjectSchema(Mapping[str, Any]):
    """Builder for the JSON Schema of an object, such as a tool's parameters (LangChain4j's JsonObjectSchema).

        JsonObjectSchema("An order.").string("sku").integer("count", minimum=1).required("sku").build()

    Properties are optional unless `required` names them. Each method accepts further JSON Schema keywords, as in
    ``.string("sku", pattern="^[A-Z]+$")``. The builder is a mapping itself; `build` returns a dict of its own.

    Args:
        description: Description of the object.
    """

    def __init__(self, description: str | None = None) -> None:
        self._description = description
        self._properties: dict[str, dict[str, Any]] = {}
        self._required: list[str] = []
        self._definitions: dict[str, dict[str, Any]] = {}
        self._additional_properties: bool | None = None

    def string(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a string property."""
        return self._add(name, {"type": "string"}, description, keywords)

    def integer(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add an integer property."""
        return self._add(name, {"type": "integer"}, description, keywords)

    def number(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a number property."""
        return self._add(name, {"type": "number"}, description, keywords)

    def boolean(self, name: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a boolean property."""
        return self._add(name, {"type": "boolean"}, description, keywords)

    def enum(self, name: str, values: Sequence[Any], description: str | None = None, **keywords: Any) -> Self:
        """Add a property with a fixed set of JSON values.

        Raises:
            DefinitionError: The list of values is empty.
        """
        if not values or isinstance(values, str):
            raise DefinitionError(f"the enum {name!r} needs a list of values, not {values!r}")
        texts = {"type": "string"} if all(isinstance(value, str) for value in values) else {}
        return self._add(name, {**texts, "enum": list(values)}, description, keywords)

    def array(self, name: str, items: Schema, description: str | None = None, **keywords: Any) -> Self:
        """Add an array property; all items have the same schema."""
        return self._add(name, {"type": "array", "items": self._nested(items)}, description, keywords)

    def object(self, name: str, schema: Schema, description: str | None = None, **keywords: Any) -> Self:
        """Add an object property."""
        return self._add(name, self._nested(schema), description, keywords)

    def reference(self, name: str, definition: str, description: str | None = None, **keywords: Any) -> Self:
        """Add a property with the schema of a `definition`, which may be added later and may be recursive."""
        return self._add(name, reference_to(definition), description, keywords)

    def any_of(self, name: str, schemas: Sequence[Schema], description: str | None = None, **keywords: Any) -> Self:
        """Add a property that matches at least one of several schemas."""
        return self._add(name, {"anyOf": [self._nested(schema) for schema in schemas]}, description, keywords)

    def raw(self, name: str, schema: Mapping[str, Any]) -> Self:
        """Add a property with a complete JSON Schema."""
        return self._add(name, dict(schema), None, {})

    def required(self, *names: str) -> Self:
        """Mark properties as required."""
        self._required.extend(name for name in names if name not in self._required)
        return self

    def definition(self, name: str, schema: Schema) -> Self:
        """Add a named schema for `reference` and `reference_to`."""
        self._define(name, self._nested(schema))
        return self

    def additional_properties(self, allowed: bool) -> Self:
        """Allow or forbid properties that are not listed."""
        self._additional_properties = allowed
        return self

    def build(self) -> dict[str, Any]:
        """Return the schema.

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

    def __getitem__(self, keyword: str) -> Any:
        return self.build()[keyword]

    def __iter__(self) -> Iterator[str]:
        return iter(self.build())

    def __len__(self) -> int:
        return len(self.build())

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
    """Return a reference to a definition, for items, alternatives and recursion."""
    return {"$ref": _DEFINITIONS + definition.replace("~", "~0").replace("/", "~1")}

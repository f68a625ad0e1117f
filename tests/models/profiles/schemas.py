"""Random schemas: meaningful ones, and mutated ones; all of them are JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "$filter", "größe", "a b", "x" * 70, "type", "$ref", "properties"])
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 2.0]), st.sampled_from(["", "a", "b", "2020"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2))
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])
REFERENCES = st.sampled_from(
    [
        "#",
        "#/$defs/A",
        "#/$defs/A/properties/a",
        "#/$defs/B",
        "#/$defs/B%5Bint%5D",
        "#/$defs/C",
        "#/$defs/none",
        "#/definitions/D",
        "#/properties/a",
        "#anchor",
        "https://example.com/schema.json",
    ]
)


def _keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(NAMES, inner, max_size=3)
    count = st.integers(0, 4)
    return {
        "$ref": REFERENCES,
        "additionalItems": inner,
        "additionalProperties": inner | st.booleans(),
        "allOf": several,
        "anyOf": several,
        "const": VALUES,
        "default": VALUES,
        "description": st.just("Words."),
        "discriminator": st.just({"propertyName": "kind"}),
        "else": inner,
        "enum": st.lists(SCALARS, min_size=1, max_size=3),
        "exclusiveMinimum": st.integers(0, 3) | st.booleans(),
        "format": st.sampled_from(["date-time", "uri", "uuid", "color"]),
        "if": inner,
        "items": inner | st.booleans() | st.lists(inner, max_size=2),
        "maxLength": count,
        "minItems": count,
        "minLength": count,
        "minimum": count,
        "multipleOf": st.sampled_from([0.5, 2]),
        "not": inner,
        "nullable": st.booleans(),
        "oneOf": several,
        "pattern": st.sampled_from(["^a+$", "(?=b)", r"\bword\b", "^[a-z]{2}$"]),
        "patternProperties": st.dictionaries(st.just("^x-"), inner, max_size=1),
        "prefixItems": several,
        "properties": named,
        "required": st.lists(NAMES, max_size=3, unique=True),
        "title": st.just("Title"),
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "uniqueItems": st.booleans(),
        "x-vendor": VALUES,
    }


def _nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = _keywords(inner)
    some = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return some.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


NODES: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries({"type": TYPES}) | st.fixed_dictionaries({"$ref": REFERENCES}) | st.booleans(),
    _nodes,
    max_leaves=8,
)
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda root, properties, required, definitions: {
        **(root if isinstance(root, dict) else {}),
        "properties": properties,
        "required": required,
        "$defs": definitions,
        "definitions": {"D": {"type": "string"}},
    },
    NODES,
    st.dictionaries(NAMES, NODES, max_size=3),
    st.lists(NAMES, max_size=2, unique=True),
    st.fixed_dictionaries({"A": NODES, "B": NODES, "C": NODES, "B[int]": NODES}),
)
"""Schemas of parameters, which may be contradictory."""

JUNK: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(sorted(_keywords(st.booleans()))), VALUES, max_size=6
)
"""Keywords with values that they may not have."""

# --- schemas that can be strict, and what a model may say under the strict copy -----------------------------------

KEYS = st.sampled_from(["a", "b", "c"])


def _object(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    return properties.flatmap(
        lambda found: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(found),
                "required": st.lists(st.sampled_from(sorted(found)), unique=True),
            },
            optional={"additionalProperties": st.just(False)},
        )
    )


def _closed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda variants: {"anyOf": variants}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda variants: {"oneOf": variants, "default": None}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda part: {"allOf": [part], "description": "One part."}, inner),
        _object(inner),
    )


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "null", "boolean"])}),
    st.just({"type": ["string", "null"], "default": None}),
    st.just({"enum": ["x", 1, None]}),
    st.just({"$ref": "#/$defs/A"}),
    st.just({"$ref": "#/$defs/B", "description": "B."}),
)
CLOSED_SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda root, first, second: {**root, "$defs": {"A": first, "B": second}},
    _object(st.recursive(LEAVES, _closed, max_leaves=5)),
    st.recursive(LEAVES, _closed, max_leaves=3),
    st.recursive(LEAVES, _closed, max_leaves=3),
)
"""Schemas whose objects are closed; many of them can be strict."""


def said_under(schema: dict[str, Any], node: Any = None, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return an instance that a strict schema admits; nothing if it would be endless."""
    node = schema if node is None else node
    if depth > 8:
        return st.nothing()
    if "$ref" in node:
        return said_under(schema, schema["$defs"][node["$ref"].removeprefix("#/$defs/")], depth + 1)
    if "anyOf" in node:
        return st.one_of([said_under(schema, each, depth + 1) for each in node["anyOf"]])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    return st.one_of([_said_of_kind(schema, node, kind, depth) for kind in kinds])


def _said_of_kind(schema: dict[str, Any], node: Any, kind: str, depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case "object":
            return st.fixed_dictionaries(
                {key: said_under(schema, each, depth + 1) for key, each in node["properties"].items()}
            )
        case "array":
            items = said_under(schema, node["items"], depth + 1)
            return st.just([]) if items.is_empty else st.lists(items, max_size=2)
        case _:
            return {
                "string": st.sampled_from(["", "x", "y"]),
                "integer": st.integers(0, 2),
                "number": st.sampled_from([0.5, 1]),
                "boolean": st.booleans(),
                "null": st.none(),
            }[kind]

"""Non-strict schemas for OpenAI, Anthropic, Bedrock and Gemini, with as few changes as possible.

Providers mainly reject alternatives or non-objects at the root, and some property names. Gemini's Schema is a subset of
OpenAPI 3.0's: no references, one type for each schema, ``nullable`` (Gemini API reference, "Schema").
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from bridge.models.profiles.keywords import ANNOTATIONS, annotations_of, fits, kinds_of
from bridge.models.profiles.normalization import inlined, reference_in, rewritten, with_definitions
from bridge.models.profiles.rewriting import RewrittenSchema, with_notes
from bridge.tools.transform import safe_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

MAX_NAME_CHARS = 64
"""Maximum length of a property name, for providers that limit it."""

_MAX_PARTS = 200

_NOT_AT_THE_ROOT = frozenset(
    {"allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then", "discriminator", "$ref"}
)

_BEDROCK_ROOT = frozenset({"type", "properties", "required", "$defs"})
_MAX_NODES = 5_000
_MAX_LEVELS = 64

_FORMATS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}

_KEPT: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "boolean": (),
}

_NOTED = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "default", "format", "enum", "const")
"""Keywords that are added to the description if they cannot be kept."""


def openai(normal: NormalSchema) -> RewrittenSchema:
    """Schema for OpenAI: the root is an object without alternatives; arrays have ``items``."""
    root, losses = object_root(normal)
    definitions = {name: rewritten(node, _with_items) for name, node in normal.definitions.items()}
    return RewrittenSchema(schema=with_definitions(rewritten(root, _with_items), definitions), losses=losses)


def anthropic(normal: NormalSchema) -> RewrittenSchema:
    """Schema for Anthropic: the root is an object without alternatives; property names have safe characters."""
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_.-]")
    return RewrittenSchema(schema=with_definitions(root, normal.definitions), restore=restore, losses=losses)


def bedrock(normal: NormalSchema) -> RewrittenSchema:
    """Schema for Bedrock: as for Anthropic, with only root keywords that Nova accepts, and references inlined.

    Definitions are kept if they are recursive, or too large when inlined.
    """
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_.-]")
    schema = inlined(root, normal) or with_definitions(root, normal.definitions)
    kept = {key: value for key, value in schema.items() if key in _BEDROCK_ROOT}
    return RewrittenSchema(schema=kept, restore=restore, losses=losses)


def object_root(normal: NormalSchema) -> tuple[Json, tuple[str, ...]]:
    """Merge the root's alternatives into one object; returns it and the lost keywords."""
    root = normal.resolved(normal.root)
    merged = _Merger(normal).merged(root) if root.keys() & {"allOf", "anyOf", "oneOf"} else root
    lost: list[str] = [key for key in ("anyOf", "oneOf", "not", "if", "enum", "const") if key in root]
    lost += [] if root.get("type", "object") == "object" else ["type"]
    kept = {key: value for key, value in merged.items() if key not in _NOT_AT_THE_ROOT}
    schema = {"type": "object", **kept, "properties": kept.get("properties", {})} | {"type": "object"}
    return schema, normal.losses + tuple(f"{key!r} at the root" for key in lost)


def with_safe_properties(root: Json, forbidden: str) -> tuple[Json, Callable[[Any], Any] | None]:
    """Rename unsafe properties of the root; returns it and a function that restores the names in a reply."""
    properties = root["properties"]
    names = safe_names(properties, max_chars=MAX_NAME_CHARS, forbidden=forbidden)
    originals = {safe: name for name, safe in names.items() if safe != name}
    if not originals:
        return root, None

    def restored(value: Any) -> Any:
        return {originals.get(key, key): each for key, each in value.items()} if isinstance(value, dict) else value

    safe: Json = {**root, "properties": {names[name]: schema for name, schema in properties.items()}}
    if "required" in root:
        safe["required"] = [names.get(name, name) for name in root["required"]]
    return safe, restored


def _with_items(node: Json) -> Json:
    kinds = node.get("type")
    if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and not isinstance(node.get("items"), dict):
        return {**node, "items": {}}
    return node


class _Merger:
    """Merges combined schemas at a root into one object that accepts at least as much."""

    def __init__(self, normal: NormalSchema) -> None:
        self._normal = normal
        self._parts = 0

    def merged(self, node: Json) -> Json:
        """Merge a node's parts and alternatives into it."""
        node = self._normal.resolved(node)
        self._parts += 1
        if self._parts > _MAX_PARTS:
            return node
        result = {key: value for key, value in node.items() if key not in {"allOf", "anyOf", "oneOf"}}
        for part in node.get("allOf", ()):
            result = _together(result, self.merged(part))
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                result = _together(result, self._alternatives(node[keyword]))
        return result

    def _alternatives(self, nodes: list[Json]) -> Json:
        """Merge alternatives into an object that accepts each of them."""
        variants = [self.merged(node) for node in nodes]
        variants = [each for each in variants if each.get("type", "object") == "object"] or [{}]
        properties: dict[str, list[Json]] = {}
        for variant in variants:
            for name, schema in variant.get("properties", {}).items():
                found = properties.setdefault(name, [])
                found += [] if schema in found else [schema]
        common = set.intersection(*(set(variant.get("required", ())) for variant in variants))
        return {
            "properties": {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in properties.items()},
            "required": [name for name in variants[0].get("required", ()) if name in common],
        }


def _together(first: Json, second: Mapping[str, Any]) -> Json:
    """Merge two objects: all properties, and all required names."""
    required = [*first.get("required", ()), *second.get("required", ())]
    merged = {**second, **first, "properties": {**second.get("properties", {}), **first.get("properties", {})}}
    return merged | ({"required": list(dict.fromkeys(required))} if required else {})


def gemini(normal: NormalSchema) -> RewrittenSchema:
    """Schema for Gemini."""
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_]")
    writer = _Writer(normal)
    schema = writer.written(root, frozenset(), 0)
    return RewrittenSchema(schema=schema, restore=restore, losses=losses + tuple(dict.fromkeys(writer.losses)))


class _Writer:
    def __init__(self, normal: NormalSchema) -> None:
        self._normal = normal
        self._nodes = 0
        self.losses: list[str] = []

    def written(self, node: Json, trail: frozenset[str], level: int) -> Json:
        self._nodes += 1
        name = reference_in(node)
        if name is not None and name in trail:
            return self._cut(node, f"the recursion of {name!r}")
        if self._nodes > _MAX_NODES or level > _MAX_LEVELS:
            return self._cut(node, "parts that are too large or too deeply nested when inlined")
        if name is not None:
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return self.written({**self._normal.definitions[name], **siblings}, trail | {name}, level + 1)
        if "allOf" in node:
            return self.written(self._combined(node), trail, level + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._union(node, keyword, trail, level)
        return self._plain(node, trail, level)

    def _cut(self, node: Json, what: str) -> Json:
        """Replace a schema that cannot be inlined by one that accepts at least as much."""
        self.losses.append(what)
        return {**_anything(), **annotations_of(node)}

    def _combined(self, node: Json) -> Json:
        """Merge the parts of ``allOf`` as far as a schema with one type can."""
        rest = {key: value for key, value in node.items() if key != "allOf"}
        return reduce(_together, [rest, *(self._normal.resolved(part) for part in reversed(node["allOf"]))])

    def _union(self, node: Json, keyword: str, trail: frozenset[str], level: int) -> Json:
        variants = [self.written(each, trail, level + 1) for each in node[keyword] if kinds_of(each) != ("null",)]
        flat = [inner for each in variants for inner in (each["anyOf"] if each.keys() == {"anyOf"} else [each])]
        is_nullable = len(variants) < len(node[keyword])
        written: Json = {"anyOf": flat} if len(flat) > 1 else dict(*flat)
        written = (written or _anything()) | annotations_of(node)
        written |= {"nullable": True} if is_nullable else {}
        return with_notes(written, {"default": node["default"]} if node.get("default") is not None else {})

    def _plain(self, node: Json, trail: frozenset[str], level: int) -> Json:
        kinds = kinds_of(node)
        solid = [kind for kind in kinds if kind != "null"]
        if not solid:
            return {**_anything(), **annotations_of(node)} | ({"nullable": True} if kinds else {})
        nullable = {"nullable": True} if "null" in kinds else {}
        if len(solid) == 1:
            return self._of_kind(solid[0], node, trail, level) | nullable
        bare = {key: value for key, value in node.items() if key not in {*ANNOTATIONS, "default"}}
        variants = [self._of_kind(kind, bare, trail, level) for kind in solid]
        return {"anyOf": variants, **annotations_of(node), **nullable}

    def _of_kind(self, kind: str, node: Json, trail: frozenset[str], level: int) -> Json:
        written: Json = {"type": kind, **annotations_of(node)}
        written |= {key: node[key] for key in _KEPT[kind] if key in node}
        if node.get("format") in _FORMATS.get(kind, ()):
            written["format"] = node["format"]
        choices = [node["const"]] if "const" in node else node.get("enum", [])
        choices = [each for each in choices if fits(each, (kind,))]
        if choices and all(isinstance(each, str) and each for each in choices):
            written["enum"] = choices
        if kind == "object":
            written |= self._object(node, trail, level)
        if kind == "array":
            written["items"] = self._items(node, trail, level)
        noted = {key: node[key] for key in _NOTED if key in node and key not in written and node[key] is not None}
        if "enum" in written:
            noted.pop("const", None)
        return with_notes(written, noted)

    def _object(self, node: Json, trail: frozenset[str], level: int) -> Json:
        properties = node.get("properties", {})
        written = {name: self.written(each, trail, level + 1) for name, each in properties.items()}
        required = [name for name in node.get("required", ()) if name in written]
        return ({"properties": written} if written else {}) | ({"required": required} if required else {})

    def _items(self, node: Json, trail: frozenset[str], level: int) -> Json:
        items = node.get("items")
        if "prefixItems" in node:
            variants = [*node["prefixItems"], *([items] if isinstance(items, dict) else [])]
            distinct = [each for number, each in enumerate(variants) if each not in variants[:number]]
            return self.written(distinct[0] if len(distinct) == 1 else {"anyOf": distinct}, trail, level + 1)
        return self.written(items if isinstance(items, dict) else {}, trail, level + 1)


def _anything() -> Json:
    """A schema that accepts nearly any value; Gemini has none that accepts all."""
    scalars: list[Json] = [{"type": kind} for kind in ("string", "number", "boolean")]
    return {"anyOf": [*scalars, {"type": "object"}, {"type": "array", "items": {"anyOf": scalars}}]}

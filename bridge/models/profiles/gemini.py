"""Copies for Gemini, whose Schema is a part of OpenAPI 3.0's: no references, one type a schema, ``nullable``.

Google, "Schema" in the reference of the Gemini API. Its own API takes this in a function's ``parameters``, and its
OpenAI-compatible one translates to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.models.profiles.keywords import ANNOTATIONS, annotations_of, fits, kinds_of
from bridge.models.profiles.lenient import object_root, with_safe_properties
from bridge.models.profiles.normalization import reference_in
from bridge.models.profiles.rewriting import Rewriting, noted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

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
_TOLD = ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "default", "format", "enum", "const")
"""What is told in the description where it cannot be kept."""


def gemini(normal: NormalSchema) -> Rewriting:
    """The copy of a schema for Gemini."""
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_]")
    writer = _Writer(normal)
    schema = writer.written(root, frozenset(), 0)
    return Rewriting(schema=schema, restore=restore, losses=losses + tuple(dict.fromkeys(writer.losses)))


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
            return self._cut(node, "what would be too large or too deep written out")
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
        """What stands for a schema that is not written out: one that takes as much or more."""
        self.losses.append(what)
        return {**_anything(), **annotations_of(node)}

    def _combined(self, node: Json) -> Json:
        """A schema whose parts are written into it: as near as one type a schema can come."""
        parts = [self._normal.resolved(part) for part in node["allOf"]]
        merged: Json = {}
        for part in [*parts, {key: value for key, value in node.items() if key != "allOf"}]:
            properties = {**merged.get("properties", {}), **part.get("properties", {})}
            required = [*merged.get("required", ()), *part.get("required", ())]
            merged |= part | ({"properties": properties} if properties else {})
            merged |= {"required": list(dict.fromkeys(required))} if required else {}
        return merged

    def _union(self, node: Json, keyword: str, trail: frozenset[str], level: int) -> Json:
        variants = [self.written(each, trail, level + 1) for each in node[keyword] if kinds_of(each) != ("null",)]
        flat = [inner for each in variants for inner in (each["anyOf"] if each.keys() == {"anyOf"} else [each])]
        is_nullable = len(variants) < len(node[keyword])
        written: Json = {"anyOf": flat} if len(flat) > 1 else dict(*flat)
        written = (written or _anything()) | annotations_of(node)
        written |= {"nullable": True} if is_nullable else {}
        return noted(written, {"default": node["default"]} if node.get("default") is not None else {})

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
        choices = [each for each in _choices(node) if fits(each, (kind,))]
        if choices and all(isinstance(each, str) and each for each in choices):
            written["enum"] = choices
        if kind == "object":
            written |= self._object(node, trail, level)
        if kind == "array":
            written["items"] = self._items(node, trail, level)
        told = {key: node[key] for key in _TOLD if key in node and key not in written and node[key] is not None}
        if "enum" in written:
            told.pop("const", None)
        return noted(written, told)

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


def _choices(node: Json) -> list[Any]:
    choices: list[Any] = [node["const"]] if "const" in node else node.get("enum", [])
    return choices


def _anything() -> Json:
    """A schema that takes nearly any value; there is none that takes all."""
    scalars: list[Json] = [{"type": kind} for kind in ("string", "number", "boolean")]
    return {"anyOf": [*scalars, {"type": "object"}, {"type": "array", "items": {"anyOf": scalars}}]}

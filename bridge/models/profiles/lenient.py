"""Lenient copies: schemas that a provider shows to the model and does not hold it to, changed as little as may be.

What providers refuse even then is mostly at the root: alternatives, or no object; and names of properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.models.profiles.inlining import inlined
from bridge.models.profiles.normalization import rewritten
from bridge.models.profiles.rewriting import Rewriting
from bridge.tools.transform import safe_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

MAX_NAME_CHARS = 64
"""How long the name of a property may be for those who mind."""

_MAX_PARTS = 200
_NOT_AT_THE_ROOT = frozenset(
    {"allOf", "anyOf", "const", "else", "enum", "if", "not", "oneOf", "then", "discriminator", "$ref"}
)
_BEDROCK_ROOT = frozenset({"type", "properties", "required", "$defs"})


def openai(normal: NormalSchema) -> Rewriting:
    """For OpenAI: an object without alternatives at the root; arrays that say what is in them."""
    root, losses = object_root(normal)
    definitions = {name: rewritten(node, _with_items) for name, node in normal.definitions.items()}
    schema = rewritten(root, _with_items)
    return Rewriting(schema={**schema, "$defs": definitions} if definitions else schema, losses=losses)


def anthropic(normal: NormalSchema) -> Rewriting:
    """For Anthropic: an object without alternatives at the root, whose properties have plain names."""
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_.-]")
    definitions = dict(normal.definitions)
    return Rewriting(schema={**root, "$defs": definitions} if definitions else root, restore=restore, losses=losses)


def bedrock(normal: NormalSchema) -> Rewriting:
    """For Bedrock: as for Anthropic, with no more than Nova takes at the root, and without references where it can be.

    Definitions stay where they refer to themselves, or would grow too large written out.
    """
    root, losses = object_root(normal)
    root, restore = with_safe_properties(root, r"[^A-Za-z0-9_.-]")
    schema = inlined(root, normal) or {**root, "$defs": dict(normal.definitions)}
    kept = {key: value for key, value in schema.items() if key in _BEDROCK_ROOT}
    return Rewriting(schema=kept, restore=restore, losses=losses)


def object_root(normal: NormalSchema) -> tuple[Json, tuple[str, ...]]:
    """The root as an object that says at once what its alternatives say, and what was lost by that."""
    root = normal.resolved(normal.root)
    merged = _Merger(normal).merged(root) if root.keys() & {"allOf", "anyOf", "oneOf"} else root
    lost: list[str] = [key for key in ("anyOf", "oneOf", "not", "if", "enum", "const") if key in root]
    lost += [] if root.get("type", "object") == "object" else ["type"]
    kept = {key: value for key, value in merged.items() if key not in _NOT_AT_THE_ROOT}
    schema = {"type": "object", **kept, "properties": kept.get("properties", {})} | {"type": "object"}
    return schema, normal.losses + tuple(f"{key!r} at the root" for key in lost)


def with_safe_properties(root: Json, forbidden: str) -> tuple[Json, Callable[[Any], Any] | None]:
    """A root whose properties have names that a provider takes, and the way back from what the model says."""
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
    """Merges what is combined at a root into one object that takes at least as much."""

    def __init__(self, normal: NormalSchema) -> None:
        self._normal = normal
        self._parts = 0

    def merged(self, node: Json) -> Json:
        """A node with its parts and alternatives written into it."""
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
        """What takes every one of some alternatives."""
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
    """An object that has the properties of two, and requires what either does."""
    required = [*first.get("required", ()), *second.get("required", ())]
    merged = {**second, **first, "properties": {**second.get("properties", {}), **first.get("properties", {})}}
    return merged | ({"required": list(dict.fromkeys(required))} if required else {})

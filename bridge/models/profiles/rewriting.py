"""Result of a schema conversion, and restoration of replies.

In strict copies, optional properties are required and null stands for an absent value; `NullRemoval` reverses this.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.models.profiles.keywords import fits, kinds_of
from bridge.models.profiles.normalization import alternatives, children, reference_in
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.models.profiles.normalization import NormalSchema
    from bridge.types import Json

_NOTE_CHARS = 200
_CONTAINERS = ("object", "array")

_MAX_HOPS = 100
"""Maximum nested alternatives that are followed for a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenSchema:
    """A schema converted for a provider."""

    schema: Json
    """The converted copy."""
    is_strict: bool = False
    """True if the provider can enforce it, and every valid reply keeps its meaning."""
    restore: Callable[[Any], Any] | None = None
    """Converts a reply to the original schema; None if no conversion is needed."""
    losses: tuple[str, ...] = ()
    """Parts that could not be converted, as text."""


class NotStrictableError(Exception):
    """No strict copy of the schema exists; the message gives the reason."""


def with_notes(schema: Json, left_out: Mapping[str, Any]) -> Json:
    """Add removed keywords to a schema's description, so that the model may follow them."""
    if not left_out:
        return schema
    values = {keyword: clip(json.dumps(value, ensure_ascii=False), _NOTE_CHARS) for keyword, value in left_out.items()}
    notes = ", ".join(f"{keyword}: {value}" for keyword, value in values.items())
    description = schema.get("description")
    return {**schema, "description": f"{description} ({notes})" if description else f"({notes})"}


class NullRemoval:
    """Removes nulls that stand for absent optional properties."""

    def __init__(self, normal: NormalSchema) -> None:
        self._normal = normal
        self._null_takers: dict[str, bool] = {}
        self._kinds_taken: dict[str, tuple[str, ...]] = {}

    def restored(self, value: Any) -> Any:
        """Remove such nulls from a reply."""
        return self._restored(value, self._normal.root)

    def is_needed(self, *nodes: Json) -> bool:
        """True if values of these schemas may contain such nulls."""
        pending, seen = list(nodes), set()
        while pending:
            node = pending.pop()
            name = reference_in(node)
            if name is not None and name not in seen:
                seen.add(name)
                pending.append(self._normal.definitions[name])
            if any(self.stands_for_absence(key, node) for key in node.get("properties", ())):
                return True
            pending.extend(children(node))
        return False

    def check_union(self, variants: Sequence[Json]) -> None:
        """Raise `NotStrictableError` if values that need nulls removed do not determine their alternative."""
        for container in _CONTAINERS:
            alike = [variant for variant in variants if container in self._kinds(variant)]
            if len(alike) > 1 and self.is_needed(*alike):
                raise NotStrictableError("alternatives with optional properties cannot be told apart")

    def stands_for_absence(self, key: str, node: Mapping[str, Any]) -> bool:
        """True if null for an object's property means that it is absent."""
        return key not in node.get("required", ()) and not self.accepts_null(node["properties"][key])

    def accepts_null(self, node: Json) -> bool:
        """True if a schema accepts null, or if that is unknown."""
        name = reference_in(node)
        if name is not None and not self._definition_accepts_null(name):
            return False
        if "enum" in node and None not in node["enum"]:
            return False
        if "const" in node and node["const"] is not None:
            return False
        kinds = kinds_of(node)
        if kinds and "null" not in kinds:
            return False
        for keyword, combined in (("anyOf", any), ("oneOf", any), ("allOf", all)):
            if keyword in node and not combined([self.accepts_null(each) for each in node[keyword]]):
                return False
        return True

    def _definition_accepts_null(self, name: str) -> bool:
        if name not in self._null_takers:
            self._null_takers[name] = True  # value for recursive references
            self._null_takers[name] = self.accepts_null(self._normal.definitions[name])
        return self._null_takers[name]

    def _kinds(self, node: Json) -> tuple[str, ...]:
        """JSON types that a schema accepts, including its alternatives."""
        name = reference_in(node)
        inner = list(self._definition_kinds(name)) if name is not None else []
        inner += [kind for each in alternatives(node) for kind in self._kinds(each)]
        return tuple(dict.fromkeys(inner)) or kinds_of(node) or _CONTAINERS

    def _definition_kinds(self, name: str) -> tuple[str, ...]:
        if name not in self._kinds_taken:
            self._kinds_taken[name] = ()  # value for recursive references
            self._kinds_taken[name] = self._kinds(self._normal.definitions[name])
        return self._kinds_taken[name]

    def _restored(self, value: Any, node: Json, hops: int = 0) -> Any:
        if not isinstance(value, dict | list) or hops > _MAX_HOPS:
            return value
        node = self._normal.resolved(node)
        if variants := alternatives(node):
            candidates = [each for each in variants if fits(value, self._kinds(each))]
            return self._restored(value, candidates[0], hops + 1) if len(candidates) == 1 else value
        if isinstance(value, list):
            items = node.get("items")
            return [self._restored(each, items) for each in value] if isinstance(items, dict) else value
        properties = node.get("properties", {})
        return {
            key: self._restored(each, properties[key]) if key in properties else each
            for key, each in value.items()
            if not (each is None and key in properties and self.stands_for_absence(key, node))
        }

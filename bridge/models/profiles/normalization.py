"""Normal form of schemas: valid 2020-12, with all references to definitions at the root.

Schemas of remote servers use all drafts and contain mistakes, and providers reject a request with one invalid schema.
Keywords of older drafts are converted, malformed ones are removed, and references are resolved within the schema, never
over the network. The cost is linear in the schema's size.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from bridge.models.profiles.keywords import BOOLEAN_OR_SCHEMA, DROPPED, SCHEMA, SCHEMA_LIST, SCHEMA_MAP, is_well_formed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bridge.types import Json

MAX_DEPTH = 64
"""Maximum nesting depth; deeper schemas become a schema that accepts any value."""

_DEFINITIONS = "#/$defs/"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_ANY: Json = {}

MAX_NODES = 5_000
"""Maximum schemas after inlining, which may grow exponentially."""


@dataclass(frozen=True, slots=True)
class NormalSchema:
    """A schema and its definitions, referenced as ``#/$defs/NAME``."""

    root: Json
    definitions: Mapping[str, Json]
    losses: tuple[str, ...] = ()
    """Parts that could not be converted, as text."""

    def resolved(self, node: Json) -> Json:
        """Inline the reference of a node, at the top level only.

        A circular chain, or one of more than `MAX_DEPTH` references, ends in a schema that accepts any value.
        """
        seen: set[str] = set()
        while (name := reference_in(node)) is not None:
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            if name in seen or len(seen) >= MAX_DEPTH:
                return siblings
            seen.add(name)
            node = {**self.definitions[name], **siblings}
        return node

    def is_recursive(self) -> bool:
        """True if a definition refers to itself, directly or indirectly."""
        return self._has_circle(children)

    def is_circular(self) -> bool:
        """True if a definition consists only of itself, through references and alternatives; it restricts nothing."""
        return self._has_circle(alternatives)

    def _has_circle(self, inner: Callable[[Json], list[Json]]) -> bool:
        uses = {name: set(_references(node, inner)) for name, node in self.definitions.items()}
        try:
            TopologicalSorter(uses).prepare()
        except CycleError:
            return True
        return False


def normalized(schema: Mapping[str, Any]) -> NormalSchema:
    """Convert a schema to its normal form; the original is not changed."""
    return _Normalizer(schema).normalized()


def with_definitions(root: Json, definitions: Mapping[str, Json]) -> Json:
    """Join a schema and its definitions to one document."""
    return {**root, "$defs": dict(definitions)} if definitions else root


def reference_in(node: Mapping[str, Any]) -> str | None:
    """Name of the definition that a normalised node refers to; None for none."""
    reference = node.get("$ref")
    return reference.removeprefix(_DEFINITIONS) if isinstance(reference, str) else None


def children(node: Mapping[str, Any]) -> list[Json]:
    """Direct subschemas of a schema."""
    found: list[Json] = []
    mapped(node, found.append)
    return found


def mapped(node: Mapping[str, Any], change: Callable[[Any], Any]) -> Json:
    """Copy a schema, applying a function to its direct subschemas, which are objects in a normalised schema."""
    result: Json = {}
    for key, value in node.items():
        if key in SCHEMA or (key in BOOLEAN_OR_SCHEMA and not isinstance(value, bool)):
            result[key] = change(value)
        elif key in SCHEMA_MAP:
            result[key] = {name: change(each) for name, each in value.items()}
        else:
            result[key] = [change(each) for each in value] if key in SCHEMA_LIST else value
    return result


def rewritten(node: Json, change: Callable[[Json], Json]) -> Json:
    """Copy a schema, applying a function to every subschema, innermost first."""
    return change(mapped(node, lambda inner: rewritten(inner, change)))


def alternatives(node: Json) -> list[Json]:
    """Subschemas for the same value."""
    return [each for keyword in ("anyOf", "oneOf", "allOf") for each in node.get(keyword, ())]


def _references(node: Json, inner: Callable[[Json], list[Json]]) -> Iterator[str]:
    pending = [node]
    while pending:
        found = pending.pop()
        if (name := reference_in(found)) is not None:
            yield name
        pending.extend(inner(found))


class _Normalizer:
    """Converts one schema; definitions are queued, so that long chains use no stack."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._pending: deque[tuple[str, Any]] = deque()
        self._losses: list[str] = []

    def normalized(self) -> NormalSchema:
        root = self._written(self._schema, 0)
        definitions: dict[str, Json] = {}
        while self._pending:
            name, node = self._pending.popleft()
            definitions[name] = self._written(node, 0)
        return NormalSchema(root, definitions, tuple(dict.fromkeys(self._losses)))

    def _written(self, node: Any, depth: int) -> Json:
        if node is False:
            return {"not": {}}
        if not isinstance(node, dict):
            return dict(_ANY)
        if depth > MAX_DEPTH:
            self._losses.append(f"parts nested more than {MAX_DEPTH} levels deep")
            return dict(_ANY)
        result: Json = {}
        for key, value in _modernized(node).items():
            if key == "$ref":
                self._refer(value, result)
            elif key in DROPPED:
                if key == "$dynamicRef":
                    self._losses.append(f"the dynamic reference {value!r}")
            elif is_well_formed(key, value):
                result[key] = value
        return mapped(result, lambda inner: self._written(inner, depth + 1))

    def _refer(self, reference: Any, result: Json) -> None:
        """Convert a reference to one to a definition at the root."""
        if not isinstance(reference, str):
            return
        pointer = unquote(reference[1:]) if reference.startswith("#") else None
        if pointer is None or not (pointer == "" or pointer.startswith("/")):
            self._losses.append(f"the reference {reference!r}, which points outside the schema")
            return
        if pointer not in self._names:
            try:
                target = _at(self._schema, pointer)
            except (LookupError, ValueError, TypeError):
                self._losses.append(f"the reference {reference!r}, which does not exist")
                return
            self._names[pointer] = self._new_name(pointer)
            self._pending.append((self._names[pointer], target))
        result["$ref"] = _DEFINITIONS + self._names[pointer]

    def _new_name(self, pointer: str) -> str:
        base = name = _UNSAFE.sub("_", pointer.rpartition("/")[2]) or "root"
        number = 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def _at(schema: Any, pointer: str) -> Any:
    """Resolve a JSON pointer (RFC 6901)."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        schema = schema[int(key)] if isinstance(schema, list) else schema[key]
    if not isinstance(schema, dict | bool):
        raise TypeError(pointer)
    return schema


def _modernized(node: Mapping[str, Any]) -> dict[str, Any]:
    """Convert keywords of drafts 4 to 2019-09 to 2020-12."""
    modern = dict(node)
    if isinstance(modern.get("items"), list):
        modern["prefixItems"] = modern.pop("items")
        if isinstance(rest := modern.pop("additionalItems", None), dict | bool):
            modern["items"] = rest
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.title()}"
        if modern.get(exclusive) is True and bound in modern:
            modern[exclusive] = modern.pop(bound)
    return modern


def inlined(root: Json, normal: NormalSchema) -> Json | None:
    """Inline all references; None for recursive schemas, or if the result is too large."""
    nodes = 0

    def written(node: Json) -> Json:
        nonlocal nodes
        nodes += 1
        if nodes > MAX_NODES:
            raise RecursionError
        return mapped(normal.resolved(node), written)

    if not normal.definitions:
        return root
    if normal.is_recursive():
        return None
    try:
        return written(root)
    except RecursionError:  # too large, or nested too deeply
        return None

"""Parameters of tools for people: types, choices, and the fields of nested values.

The schemas are foreign: references are followed within the schema only, each once on a path, and to a limited depth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.cli.assignments import parameters_of, resolved_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_LEVELS = 10
_MAX_LINES = 2_000
"""Maximum lines of one tool."""
_MAX_VISITS = 20_000
_INDENT = "  "
_UNIONS = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Amount of detail."""

    levels: int
    """Levels of nested fields below a parameter."""
    choices: int
    """Choices of an enumeration."""


SHORT = Detail(levels=1, choices=8)
FULL = Detail(levels=_MAX_LEVELS, choices=1_000)


def parameter_lines(schema: Mapping[str, Any], detail: Detail = SHORT) -> Iterator[str]:
    """One line for each parameter of a tool, followed by indented ones of its fields."""
    for number, line in enumerate(_Parameters(schema, detail).lines(schema, "", (), detail.levels)):
        if number == _MAX_LINES:
            yield "…"
            return
        yield line


def one_line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


class _Parameters:
    """Lines of the parameters in one schema document."""

    def __init__(self, root: Mapping[str, Any], detail: Detail) -> None:
        self._root = root
        self._detail = detail
        self._visits = 0

    def lines(self, schema: Mapping[str, Any], indent: str, path: tuple[int, ...], levels: int) -> Iterator[str]:
        """Lines of the fields of an object."""
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        for name, field in parameters_of(schema).items():
            kind = self._kind(field)
            default = (
                f", default {_compact(field['default'])}" if isinstance(field, dict) and "default" in field else ""
            )
            optional = "" if name in names else f", optional{default}"
            yield f"{indent}{one_line(name)}: {kind}{optional}{_description(field)}"
            objects = [(each, title) for each, title in self._objects(field) if id(each) not in path]
            if objects and not levels:
                yield f"{indent}{_INDENT}…"
                continue
            for found, title in objects:
                below = indent + _INDENT
                if len(objects) > 1:
                    yield f"{below}{title}:"
                    below += _INDENT
                yield from self.lines(found, below, (*path, id(found)), levels - 1)

    def _kind(self, schema: Any, levels: int = _MAX_LEVELS) -> str:
        """Type or choices of a value; ``any`` for a malformed schema."""
        if not isinstance(schema, dict) or not levels or not self._may_visit():
            return "any"
        found = resolved_schema(schema, self._root)
        for key in _UNIONS:
            if isinstance(found.get(key), list):
                branches = (self._kind(branch, levels - 1) for branch in found[key] if isinstance(branch, dict))
                return " or ".join(dict.fromkeys(branches)) or "any"
        if "const" in found or isinstance(found.get("enum"), list):
            return self._choices([found["const"]] if "const" in found else found["enum"])
        return self._type(schema, found, levels)

    def _type(self, schema: Mapping[str, Any], found: Mapping[str, Any], levels: int) -> str:
        """Type of a value without choices, whose schema may be a reference to the one that was found."""
        kind, values = found.get("type"), found.get("additionalProperties")
        kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str)]
        items = self._items(found)
        if kind == "array" and items:
            return f"array of {self._kind(items, levels - 1)}"
        if kind == "object" and isinstance(values, dict) and not parameters_of(found):
            return f"object of {self._kind(values, levels - 1)}"
        if kind == "object" or "properties" in found or (not found and "$ref" in schema):
            return _title(schema, found)
        return one_line(" or ".join(kinds)) or "any"

    def _may_visit(self) -> bool:
        """Count a visited schema; False after too many, since references can multiply them."""
        self._visits += 1
        return self._visits <= _MAX_VISITS

    def _choices(self, values: list[Any]) -> str:
        shown = [_compact(value) for value in values[: self._detail.choices]]
        further = len(values) - len(shown)
        return " or ".join([*shown, f"{further} others"] if further > 0 else shown)

    def _objects(self, schema: Any, levels: int = _MAX_LEVELS) -> Iterator[tuple[Mapping[str, Any], str]]:
        """The objects with fields that a value may be, or contain as items, with their names."""
        if not isinstance(schema, dict) or not levels or not self._may_visit():
            return
        found = resolved_schema(schema, self._root)
        if parameters_of(found):
            yield found, _title(schema, found)
        for key in _UNIONS:
            if isinstance(found.get(key), list):
                for branch in found[key]:
                    yield from self._objects(branch, levels - 1)
        for items in (self._items(found), found.get("additionalProperties")):
            yield from self._objects(items, levels - 1)

    @staticmethod
    def _items(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        items, first = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, dict):
            return items
        return {"anyOf": first} if isinstance(first, list) else None


def _title(schema: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Name of an object: that of its reference, or its title."""
    reference, title = schema.get("$ref"), found.get("title")
    named = reference.rpartition("/")[2] if isinstance(reference, str) else title
    return (one_line(named) if isinstance(named, str) else "") or "object"


def _description(schema: Any) -> str:
    described = schema.get("description") if isinstance(schema, dict) else None
    return f"  {one_line(described)}" if isinstance(described, str) else ""


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

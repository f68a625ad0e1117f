"""Parsing of ``name=value`` arguments by a tool's schema."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_REFERENCES = 32
_MAX_ALTERNATIVES = 100
_MAX_SHOWN_CHARS = 200
_EXAMPLES = {
    "boolean": "true",
    "integer": "5",
    "number": "1.5",
    "object": '{"name": 1}',
    "array": "[1, 2]",
    "null": "null",
}
"""Example value of each type."""
_NEED_QUOTES = set('[]{}" ')
"""Characters that a shell may interpret."""
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_TYPES = frozenset({*_JSON_TYPES.values(), "null"})
_NOTHING = object()
"""Stands for text that is not JSON."""


def read_assignments(texts: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse ``name=value`` arguments.

    Strings are used unchanged; numbers, booleans, arrays and objects are parsed as JSON. For an array, the name may be
    repeated, one item each. Without a type in the schema, the value is parsed as JSON if possible. For an enumeration,
    any other text is sent unchanged, since it may be the name of a value.
    """
    values: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} does not have the form name=value")
        values.setdefault(name, []).append(value)
    return {name: _read(name, given, schema) for name, given in values.items()}


def parameters_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Schemas of the parameters by name; empty if the server's schema is malformed."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


@dataclass(frozen=True, slots=True)
class _Kind:
    """Values that a schema accepts."""

    types: set[str]
    """JSON types; empty if unrestricted."""
    is_choice: bool
    """True for an enumeration, whose values may have names that only the tool knows."""
    items: Any
    """Schema of the items, if arrays are accepted."""


def _read(name: str, texts: list[str], root: Mapping[str, Any]) -> Any:
    kind = _kind_of(parameters_of(root).get(name), root)
    if "array" in kind.types and "string" not in kind.types:
        if len(texts) == 1 and isinstance(whole := _json(texts[0]), list):
            return whole
        items = _kind_of(kind.items, root)
        return [_value(name, text, items, is_item=True) for text in texts]
    if len(texts) > 1:
        raise click.UsageError(f"the argument {name!r} is given {len(texts)} times, but takes one value")
    return _value(name, texts[0], kind)


def _value(name: str, text: str, kind: _Kind, *, is_item: bool = False) -> Any:
    types = kind.types
    if "string" in types:
        return text
    value = _json(text.lower() if "boolean" in types and text.lower() in {"true", "false"} else text)
    if value is _NOTHING and (kind.is_choice or not types):
        return text
    own = _type_of(value)
    is_whole = "integer" in types and isinstance(value, float) and value.is_integer()
    if not types or own in types or (own == "integer" and "number" in types) or is_whole:
        return value
    wanted = " or ".join(sorted(types))
    example = _example(name, text, types, is_item)
    raise click.UsageError(
        f"the argument {name!r} is of type {wanted}, not {clip(text, _MAX_SHOWN_CHARS)!r}; write it as {example}"
    )


def _example(name: str, text: str, types: set[str], is_item: bool) -> str:
    """Example of an argument, using the given text if it is a list of items."""
    value = next(shown for kind, shown in _EXAMPLES.items() if kind in types)
    if is_item:
        value = f"[{text}]" if "," in text and _json(f"[{text}]") is not _NOTHING else f"[{value}, {value}]"
    if types == {"boolean"} and not is_item:
        return f"{name}=true or {name}=false"
    written = f"{name}={value}"
    return f"'{written}'" if set(written) & _NEED_QUOTES else written


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _type_of(value: object) -> str | None:
    return "null" if value is None else _JSON_TYPES.get(type(value))


def _kind_of(schema: Any, root: Mapping[str, Any]) -> _Kind:
    alternatives = _alternatives(schema, root)
    types = [_declared(each) for each in alternatives]
    return _Kind(
        set().union(*types) if all(types) else set(),
        any("enum" in each for each in alternatives),
        next((each["items"] for each in alternatives if isinstance(each.get("items"), dict)), {}),
    )


def _declared(schema: Mapping[str, Any]) -> set[str]:
    """Types that a schema declares, or else those of the values that it lists."""
    names = [schema["type"]] if isinstance(schema.get("type"), str) else _listed(schema, "type")
    values = [schema["const"]] if "const" in schema else _listed(schema, "enum")
    listed = {name for value in values if (name := _type_of(value))}
    return {name for name in names if isinstance(name, str) and name in _TYPES} or listed


def _alternatives(kind: Any, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schema, or the members of its union, at any depth."""
    found: list[Mapping[str, Any]] = []
    waiting = deque([kind])
    for _ in range(_MAX_ALTERNATIVES):
        if not waiting:
            break
        schema = resolved_schema(waiting.popleft(), root)
        branches = [
            branch for key in ("anyOf", "oneOf", "allOf") for branch in _listed(schema, key) if isinstance(branch, dict)
        ]
        waiting.extend(branches)
        if not branches:
            found.append(schema)
    return found


def _listed(schema: Mapping[str, Any], key: str) -> list[Any]:
    values = schema.get(key)
    return values if isinstance(values, list) else []


def resolved_schema(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references within the document; an unresolvable reference gives an empty schema."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _pointed(reference, root)
    return {}


def _pointed(reference: str, root: Any) -> Any:
    found = root if reference.startswith("#/") else None
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found

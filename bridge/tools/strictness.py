"""Leniency: where pydantic's strict mode may take a value for what it is not, found in JSON text without reading it.

Strict validation settles nearly every call. It is too lenient about a few kinds of value only: it reads a number in a
text as seconds since 1970, "4_2" as 42, and holds true for 1. Whether one of these may stand in a text is asked by a
pattern: of most values it names the property before them, so that a number elsewhere in the text costs nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.tools.coercion import TEXT_REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SPACE = rb"(?:\s|\\[bfnrt]|\\u00[0-9a-f]{2})*+"
_NOT_ASCII = rb'"(?:[^"\\\x80-\xff]|\\.)*+[\x80-\xff]'
_NUMBER = rb'"' + _SPACE + rb"[+-]?[0-9.]++(?:[eE][+-]?[0-9]++)?" + _SPACE + rb'"'
_GROUPED = rb'"(?=[^"]*_)(?:[0-9_+.eE\s-]|\\[bfnrt]|\\u00[0-9a-f]{2})++"'
_ZERO_OR_ONE = rb"(?<![0-9.])[01](?:\.0)?(?![0-9.])"
_TRUTH = rb"true|false"
"""The JSON text of strings that may hold foreign digits, of those that may be numbers, of those that may be decimals
with underscores, of two numbers, and of what Python holds for them."""

_SAME_VALUE = ("anyOf", "oneOf", "allOf")
"""What holds further schemas of a value."""

_Texts = set[bytes]


class StrictModeGaps:
    """What JSON text may hold in which pydantic's strict mode takes something for what it is not.

    Args:
        schema: What the text is validated against.
    """

    __slots__ = ("_ascii", "_foreign")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        found = _Search(schema).found
        self._ascii = _pattern({name: texts - {_NOT_ASCII} for name, texts in found.items()})
        self._foreign = _pattern({name: texts & {_NOT_ASCII} for name, texts in found.items()})

    def may_be_in(self, raw: bytes) -> bool:
        """Whether such a thing may be in a text; where it is not, seldom.

        Args:
            raw: The text, compact as `pydantic_core.to_json` writes it.
        """
        return (self._ascii is not None and self._ascii.search(raw) is not None) or (
            self._foreign is not None and not raw.isascii() and self._foreign.search(raw) is not None
        )


def _pattern(found: Mapping[str | None, _Texts]) -> re.Pattern[bytes] | None:
    """What texts look like, each within the property of a name, or anywhere."""
    named = [
        b"%b:(?:%b)" % (re.escape(to_json(name)[1:]), b"|".join(sorted(texts)))
        for name, texts in found.items()
        if name is not None and texts
    ]
    anywhere = sorted(found.get(None, ()))
    alternatives = [*([b'"(?:%b)' % b"|".join(sorted(named))] if named else []), *anywhere]
    return re.compile(b"|".join(alternatives)) if alternatives else None


class _Search:
    """What in a schema pydantic is lenient about.

    Args:
        root: The schema in whose ``$defs`` references are looked up.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.found: dict[str | None, _Texts] = {}
        """What the texts look like by the property that they stand in; None where that cannot be told."""
        self._definitions: Mapping[str, Any] = root.get("$defs", {})
        self._seen: set[tuple[int, str | None]] = set()
        self._look(root, None)

    def _look(self, schema: Any, name: str | None) -> None:
        """Look at a schema, of a value in a property of that name."""
        if isinstance(schema, list):
            for each in schema:
                self._look(each, name)
        if not isinstance(schema, dict) or (id(schema), name) in self._seen:
            return
        self._seen.add((id(schema), name))
        self.found.setdefault(name, set()).update(_texts(schema))
        if "$ref" in schema:
            self._look(self._definitions.get(str(schema["$ref"]).removeprefix("#/$defs/")), name)
        for keyword, inner in schema.items():
            if keyword == "properties" and isinstance(inner, dict):
                for each, property_schema in inner.items():
                    self._look(property_schema, each)
            elif keyword != "$defs":
                self._look(inner, name if keyword in _SAME_VALUE else None)


def _texts(schema: Mapping[str, Any]) -> Iterator[bytes]:
    """What the lenient texts of a value look like, of one schema alone."""
    if isinstance(schema.get("format"), str) and schema["format"] in TEXT_REFUSED:
        yield _GROUPED if schema["format"] == "decimal" else _NUMBER
        yield _NOT_ASCII
    for choice in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        if isinstance(choice, bool):
            yield _ZERO_OR_ONE
        elif choice in (0, 1):
            yield _TRUTH

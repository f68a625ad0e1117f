"""Search of JSON text for values that pydantic's strict mode wrongly accepts.

Strict validation handles nearly every call, but accepts a few values that it should reject: a numeric string as a date
(seconds since 1970), "4_2" as the decimal 42, and true for the enum value 1. A regular expression over the raw JSON
detects whether such a value may be present. Most patterns include the property's name, so that numbers elsewhere do not
match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.tools.arguments.coercion import TEXT_REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SPACE = rb"(?:\s|\\[bfnrt]|\\u00[0-9a-f]{2})*+"
_NOT_ASCII = rb'(?<!\\)"[^"\\\x80-\xff]*+(?:\\.[^"\\\x80-\xff]*+)*+[\x80-\xff]'
_NUMBER = rb'"' + _SPACE + rb"[+-]?[0-9.]++(?:[eE][+-]?[0-9]++)?" + _SPACE + rb'"'
_GROUPED = rb'"(?=[^"]*_)(?:[0-9_+.eE\s-]|\\[bfnrt]|\\u00[0-9a-f]{2})++"'
_ZERO_OR_ONE = rb"(?<![0-9.])[01](?:\.0)?(?![0-9.])"
_TRUTH = rb"true|false"
"""JSON patterns: strings with non-ASCII characters, numeric strings, decimal strings with underscores, the numbers 0
and 1, and the booleans that Python considers equal to them.
"""

_SAME_VALUE = ("anyOf", "oneOf", "allOf")
"""Keywords whose subschemas apply to the same value."""

_Texts = set[bytes]


class StrictModeGaps:
    """Detects JSON texts that may contain a value that strict validation by a schema wrongly accepts."""

    __slots__ = ("_ascii", "_foreign")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        patterns = _Search(schema).patterns
        self._ascii = _pattern({name: texts - {_NOT_ASCII} for name, texts in patterns.items()})
        self._foreign = _pattern({name: texts & {_NOT_ASCII} for name, texts in patterns.items()})

    def __bool__(self) -> bool:
        """True if there are such values."""
        return self._ascii is not None or self._foreign is not None

    def may_be_in(self, raw: bytes) -> bool:
        """Return True if compact JSON, as `to_json` writes it, may contain such a value; false positives are rare."""
        return (self._ascii is not None and self._ascii.search(raw) is not None) or (
            self._foreign is not None and not raw.isascii() and self._foreign.search(raw) is not None
        )


def _pattern(patterns: Mapping[str | None, _Texts]) -> re.Pattern[bytes] | None:
    """Combine the patterns of all properties, and of values without a known property, into one."""
    named = [
        b"%b:(?:%b)" % (re.escape(to_json(name)[1:]), b"|".join(sorted(texts)))
        for name, texts in patterns.items()
        if name is not None and texts
    ]
    anywhere = sorted(patterns.get(None, ()))
    alternatives = [*([b'"(?:%b)' % b"|".join(sorted(named))] if named else []), *anywhere]
    return re.compile(b"|".join(alternatives)) if alternatives else None


class _Search:
    """Collects the patterns of values in a schema for which strict validation is too lenient."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.patterns: dict[str | None, _Texts] = {}
        """Patterns by the property that contains the value; None if the property is unknown."""
        self._definitions: Mapping[str, Any] = root.get("$defs", {})
        self._seen: set[tuple[int, str | None]] = set()
        self._visit(root, None)

    def _visit(self, schema: Any, name: str | None) -> None:
        """Visit a subschema of the value of a property."""
        if isinstance(schema, list):
            for subschema in schema:
                self._visit(subschema, name)
        if not isinstance(schema, dict) or (id(schema), name) in self._seen:
            return
        self._seen.add((id(schema), name))
        self.patterns.setdefault(name, set()).update(_texts(schema))
        if "$ref" in schema:
            self._visit(self._definitions.get(str(schema["$ref"]).removeprefix("#/$defs/")), name)
        for keyword, inner in schema.items():
            if keyword == "properties" and isinstance(inner, dict):
                for property_name, property_schema in inner.items():
                    self._visit(property_schema, property_name)
            elif keyword != "$defs":
                self._visit(inner, name if keyword in _SAME_VALUE else None)


def _texts(schema: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the patterns for one schema, without its subschemas."""
    if isinstance(schema.get("format"), str) and schema["format"] in TEXT_REFUSED:
        yield _GROUPED if schema["format"] == "decimal" else _NUMBER
        yield _NOT_ASCII
    for choice in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]:
        if isinstance(choice, bool):
            yield _ZERO_OR_ONE
        elif choice in (0, 1):
            yield _TRUTH

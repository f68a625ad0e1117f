"""Coercion of values from a model that almost match a JSON Schema.

Models often write "5" for 5, or a JSON text for an object. A value is compared with a schema, and the result has a
cost:

    0         the value matches unchanged
    1         equivalent notation: 1.0 for an integer, the name of an enum's member for its value
    2         the value is the text of the expected one: "5" for an integer or a member 5, "[1, 2]" for an array
    3         a number or boolean in place of a string
    4         per object field that this alternative ignores, since another alternative may have it
    1000      per mismatch that no coercion resolves; the value stays unchanged

Among alternatives, the first with the lowest cost is chosen, so a string stays a string wherever a string is allowed.
The validator decides whether the result is valid. Only the few values that pydantic's strict mode wrongly accepts are
rejected here.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MEMBERS = "x-bridge-members"
"""Keyword under which the schema of an enum stores its members' values by name."""
Path = tuple[str | int, ...]
"""Location of a value: keys and indexes, outermost first."""

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
TEXT_REFUSED: Mapping[str, tuple[re.Pattern[str], bool, str]] = {
    # pydantic reads a numeric string as seconds since 1970
    "date": (_NUMBER, True, "should be a date in ISO 8601"),
    "date-time": (_NUMBER, True, "should be a date and time in ISO 8601"),
    # Python reads "4_2" as 42
    "decimal": (_NUMBER, False, "should be a number, or a number as text"),
}
"""By format: a pattern, True if a match is rejected or False if a non-match is, and the expected value in words."""

_ANYTHING: Mapping[str, Any] = {}
_IGNORED = 4
_MISFIT = 1_000
_NOT_JSON = object()


class RejectedValue(NamedTuple):
    """A value that must be rejected although the validator accepts it."""

    path: Path
    expected: str


class Fit(NamedTuple):
    """Result of comparing a value with a schema."""

    value: Any
    """The coerced value; the original is never modified."""
    cost: int = 0
    """Cost of the coercion; 0 if the value is unchanged."""
    refusals: tuple[RejectedValue, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True if the value matches unchanged."""
        return self.cost == 0


class Coercion:
    """Compares JSON values with one schema, whose ``$defs`` resolve references.

    Each pair of a value and a part of the schema is compared once, so the work is bounded by their sizes even for
    recursive schemas and nested alternatives.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = root.get("$defs", _ANYTHING)
        self._fits: dict[tuple[int, int], Fit] = {}
        self._parsed: dict[int, Any] = {}

    def fit(self, value: Any, schema: Any) -> Fit:
        """Compare a value with a part of the schema.

        Results are cached by the value's id, so the value must outlive this object.
        """
        key = id(value), id(schema)
        known = self._fits.get(key)
        if known is None:
            known = self._fits[key] = self._fit(value, schema)
        return known

    def _fit(self, value: Any, schema: Any) -> Fit:
        if not isinstance(schema, dict):
            return Fit(value, _MISFIT if schema is False else 0)
        if "$ref" in schema:
            return self.fit(value, self._referred(schema["$ref"]))
        if "enum" in schema or "const" in schema:
            return _as_member(value, schema)
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            chosen = self._discriminated(value, schema.get("discriminator"))
            return _cheapest(
                self.fit(value, alternative) for alternative in ([chosen] if chosen is not None else alternatives)
            )
        kinds = schema.get("type", ())
        if isinstance(kinds, str):
            return self._as_kind(kinds, value, schema)
        return _cheapest(self._as_kind(kind, value, schema) for kind in kinds) if kinds else Fit(value)

    def _referred(self, reference: str) -> Any:
        return self._definitions.get(reference.removeprefix("#/$defs/"), _ANYTHING)

    def _discriminated(self, value: Any, discriminator: Mapping[str, Any] | None) -> Any:
        """Return the alternative selected by the schema's discriminator, or None."""
        if discriminator is None:
            return None
        given = self._json_in(value) if isinstance(value, str) else value
        tag = given.get(discriminator["propertyName"]) if isinstance(given, dict) else None
        reference = discriminator.get("mapping", _ANYTHING).get(tag) if isinstance(tag, str) else None
        return None if reference is None else self._referred(reference)

    def _as_kind(self, kind: str, value: Any, schema: Mapping[str, Any]) -> Fit:
        if kind == "array":
            given, text_cost = self._structure(value, list)
            fit = self._as_array(given, schema) if isinstance(given, list) else Fit(value, _MISFIT)
        elif kind == "object":
            given, text_cost = self._structure(value, dict)
            fit = self._as_object(given, schema) if isinstance(given, dict) else Fit(value, _MISFIT)
        elif kind == "string":
            return _as_string(value, schema)
        else:
            return _SCALARS[kind](value) if kind in _SCALARS else Fit(value)
        return fit._replace(cost=fit.cost + text_cost)

    def _structure(self, value: Any, wanted: type) -> tuple[Any, int]:
        """Return an array or object, parsed from a JSON string if necessary, and the cost of parsing."""
        if isinstance(value, str) and isinstance(inner := self._json_in(value), wanted):
            return inner, 2
        return value, 0

    def _as_array(self, items: Sequence[Any], schema: Mapping[str, Any]) -> Fit:
        first = schema.get("prefixItems", ())
        rest = schema.get("items", _ANYTHING)
        fits = [self.fit(item, first[i] if i < len(first) else rest) for i, item in enumerate(items)]
        return _joined([fit.value for fit in fits], enumerate(fits))

    def _as_object(self, fields: Mapping[str, Any], schema: Mapping[str, Any]) -> Fit:
        known = schema.get("properties", _ANYTHING)
        other = schema.get("additionalProperties", _ANYTHING)
        for patterned in schema.get("patternProperties", _ANYTHING).values():
            other = patterned
        fits = {name: self.fit(field, known.get(name, other)) for name, field in fields.items()}
        missing = sum(name not in fields for name in schema.get("required", ()))
        ignored = sum(name not in known for name in fields) if known and other is _ANYTHING else 0
        joined = _joined({name: fit.value for name, fit in fits.items()}, fits.items())
        return joined._replace(cost=joined.cost + missing * _MISFIT + ignored * _IGNORED)

    def _json_in(self, text: str) -> Any:
        """Parse a JSON string; the result is cached because `fit` caches by id."""
        key = id(text)
        if key not in self._parsed:
            try:
                self._parsed[key] = from_json(text, allow_inf_nan=False)
            except ValueError:
                self._parsed[key] = _NOT_JSON
        return self._parsed[key]


def _cheapest(fits: Iterable[Fit]) -> Fit:
    """Return the fit with the lowest cost; prefer rejected mismatches, which the validator would accept."""
    return min(fits, key=lambda fit: (fit.cost, not fit.refusals))


def _joined(value: Any, parts: Iterable[tuple[str | int, Fit]]) -> Fit:
    cost, refusals = 0, []
    for step, fit in parts:
        cost += fit.cost
        refusals += [RejectedValue((step, *path), expected) for path, expected in fit.refusals]
    return Fit(value, cost, tuple(refusals))


def _as_member(value: Any, schema: Mapping[str, Any]) -> Fit:
    choices = schema["enum"] if "enum" in schema else [schema["const"]]
    if any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices):
        return Fit(value)
    members: Mapping[str, Any] = schema.get(MEMBERS, _ANYTHING)
    if isinstance(value, str) and members:
        if value in members:
            return Fit(members[value], 1)
        matches = [name for name in members if name.casefold() == value.casefold()]
        if len(matches) == 1:
            return Fit(members[matches[0]], 1)
    if isinstance(value, str):
        choices_of_text = [choice for choice in choices if _denotes(value, choice)]
        if len(choices_of_text) == 1:
            return Fit(choices_of_text[0], 2)
    if any(value == choice for choice in choices):  # Python and pydantic treat True as 1, JSON does not
        expected = " or ".join(to_json(choice).decode() for choice in choices)
        return Fit(value, _MISFIT, (RejectedValue((), f"should be {expected}"),))
    return Fit(value, _MISFIT)


def _denotes(text: str, choice: Any) -> bool:
    """Return True if the text is a notation of the number."""
    if isinstance(choice, bool) or not isinstance(choice, int | float):
        return False
    fit = _as_integer(text) if isinstance(choice, int) else _as_number(text)
    return fit.cost < _MISFIT and bool(fit.value == choice)


def _as_string(value: Any, schema: Mapping[str, Any]) -> Fit:
    if isinstance(value, str):
        refused = TEXT_REFUSED.get(schema.get("format", ""))
        if refused is not None and (refused[0].fullmatch(value) is not None) is refused[1]:
            return Fit(value, _MISFIT, (RejectedValue((), refused[2]),))
        return Fit(value)
    if schema.get("format") == "decimal" and isinstance(value, int) and not isinstance(value, bool):
        return Fit(value)  # integers of any size, unlike floats
    is_plain = "format" not in schema and "contentEncoding" not in schema
    if is_plain and isinstance(value, int | float) and not is_non_finite(value):
        return Fit(to_json(value).decode(), 3)
    return Fit(value, _MISFIT)


def _as_integer(value: Any) -> Fit:
    if isinstance(value, int) and not isinstance(value, bool):
        return Fit(value)
    if isinstance(value, float) and value.is_integer():
        return Fit(int(value), 1)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        try:
            return Fit(int(value), 2)
        except ValueError:  # more digits than Python converts (sys.set_int_max_str_digits)
            pass
    return Fit(value, _MISFIT)


def _as_number(value: Any) -> Fit:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and math.isfinite(number := float(value)):
        return Fit(number, 2)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Fit(value, _MISFIT)
    if abs(value) > sys.float_info.max and isinstance(value, int):  # pydantic would convert it to infinity
        return Fit(value, _MISFIT, (RejectedValue((), FINITE),))
    return Fit(value)


def _as_boolean(value: Any) -> Fit:
    if isinstance(value, bool):
        return Fit(value)
    return Fit(value == "true", 2) if value in ("true", "false") else Fit(value, _MISFIT)


_SCALARS: Mapping[str, Callable[[Any], Fit]] = {
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "null": lambda value: Fit(value, 0 if value is None else _MISFIT),
}

FINITE = "should be a finite number"
"""Error text for numbers that JSON cannot represent."""


def is_non_finite(value: Any) -> bool:
    """Return True for NaN and infinities, which JSON cannot represent."""
    return isinstance(value, float) and not math.isfinite(value)


def paths_of_non_finite(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the locations of all non-finite numbers in JSON data."""
    if isinstance(value, dict):
        for name, field in value.items():
            yield from paths_of_non_finite(field, (*path, name))
    elif isinstance(value, list | tuple | set | frozenset):
        for i, item in enumerate(value):
            yield from paths_of_non_finite(item, (*path, i))
    elif is_non_finite(value):
        yield path

"""Coercion: values that a model wrote almost as a JSON Schema wants them, made as it wants them.

A value is held against a schema by what it costs to make it fit:

    0         it fits as it is
    1         it says the same in another notation: 1.0 for an integer, the name of an enum's member for its value
    2         it is the text of what is wanted: "5" for an integer or a member 5, "[1, 2]" for an array
    3         it is a number or boolean where text is wanted
    4         it is a field that an object would ignore, where another alternative may know it
    a misfit  nothing here makes it fit; it is left as it came

Where a schema has alternatives, the cheapest is taken, and the first of the cheapest. So a string stays a string
wherever a string will do. Whether the outcome is valid is for the validator to say, except for the few values that
pydantic's strict mode takes although they are something else: those are refused here.
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
"""The keyword under which the schema of an enum carries its members' values by name."""

Path = tuple[str | int, ...]
"""Where a value stands: keys and positions, outermost first."""

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
TEXT_REFUSED: Mapping[str, tuple[re.Pattern[str], bool, str]] = {
    # pydantic reads a number in a text as seconds since 1970
    "date": (_NUMBER, True, "should be a date in ISO 8601"),
    "date-time": (_NUMBER, True, "should be a date and time in ISO 8601"),
    # Python reads "4_2" as 42
    "decimal": (_NUMBER, False, "should be a number, or a number as text"),
}
"""By format: a pattern, whether a match or its absence is refused, and what would have been right."""

_ANYTHING: Mapping[str, Any] = {}
_IGNORED = 4
_MISFIT = 1_000
_NOT_JSON = object()


class RejectedValue(NamedTuple):
    """A value that must not reach the tool, although the validator would take it."""

    path: Path
    expected: str


class Fit(NamedTuple):
    """How a value fits a schema."""

    value: Any
    """The value, changed as far as it had to be; what came is never changed in place."""
    cost: int = 0
    """What the change cost; 0 where it fits as it is."""
    refusals: tuple[RejectedValue, ...] = ()

    @property
    def is_exact(self) -> bool:
        """The value fits as it is."""
        return self.cost == 0


class Coercion:
    """One walk along a schema with a value of JSON data.

    No value is held against the same schema twice, so the work is bounded by their sizes, whatever alternatives and
    recursion the schema has.

    Args:
        root: The schema in whose ``$defs`` references are looked up.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = root.get("$defs", _ANYTHING)
        self._fits: dict[tuple[int, int], Fit] = {}
        self._read: dict[int, Any] = {}

    def fit(self, value: Any, schema: Any) -> Fit:
        """Hold a value, which must stay alive as long as this walk, against a part of the schema."""
        key = id(value), id(schema)
        known = self._fits.get(key)
        if known is None:
            known = self._fits[key] = self._fit(value, schema)
        return known

    def _fit(self, value: Any, schema: Any) -> Fit:
        if not isinstance(schema, dict):
            return Fit(value)
        if "$ref" in schema:
            return self.fit(value, self._referred(schema["$ref"]))
        if "enum" in schema or "const" in schema:
            return _as_member(value, schema)
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if alternatives:
            chosen = self._discriminated(value, schema.get("discriminator"))
            return _cheapest(self.fit(value, each) for each in ([chosen] if chosen is not None else alternatives))
        kinds = schema.get("type", ())
        if isinstance(kinds, str):
            return self._as_kind(kinds, value, schema)
        return _cheapest(self._as_kind(kind, value, schema) for kind in kinds) if kinds else Fit(value)

    def _referred(self, reference: str) -> Any:
        return self._definitions.get(reference.removeprefix("#/$defs/"), _ANYTHING)

    def _discriminated(self, value: Any, discriminator: Mapping[str, Any] | None) -> Any:
        """The one alternative that the value names, where the schema says how."""
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
        """An array or object, which may be said in a text, and what reading it costs."""
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
        """The JSON data that a text says; it is read once, and lives as long as this walk."""
        key = id(text)
        if key not in self._read:
            try:
                self._read[key] = from_json(text, allow_inf_nan=False)
            except ValueError:
                self._read[key] = _NOT_JSON
        return self._read[key]


def _cheapest(fits: Iterable[Fit]) -> Fit:
    """The best of the alternatives; of misfits one that must be refused, lest the validator take it."""
    return min(fits, key=lambda fit: (fit.cost, not fit.refusals))


def _joined(value: Any, parts: Iterable[tuple[str | int, Fit]]) -> Fit:
    cost, refusals = 0, []
    for step, fit in parts:
        cost += fit.cost
        refusals += [RejectedValue((step, *path), expected) for path, expected in fit.refusals]
    return Fit(value, cost, tuple(refusals))


def _as_member(value: Any, schema: Mapping[str, Any]) -> Fit:
    choices = schema["enum"] if "enum" in schema else [schema["const"]]
    if any(_is_same(value, choice) for choice in choices):
        return Fit(value)
    members: Mapping[str, Any] = schema.get(MEMBERS, _ANYTHING)
    if isinstance(value, str) and members:
        if value in members:
            return Fit(members[value], 1)
        named = [name for name in members if name.casefold() == value.casefold()]
        if len(named) == 1:
            return Fit(members[named[0]], 1)
    if isinstance(value, str):
        numbers = [choice for choice in choices if _says(value, choice)]
        if len(numbers) == 1:
            return Fit(numbers[0], 2)
    if any(value == choice for choice in choices):  # True is 1 to Python and to pydantic, and is not to JSON
        said = " or ".join(to_json(choice).decode() for choice in choices)
        return Fit(value, _MISFIT, (RejectedValue((), f"should be {said}"),))
    return Fit(value, _MISFIT)


def _says(text: str, choice: Any) -> bool:
    """Whether a text is that of a number."""
    if isinstance(choice, bool) or not isinstance(choice, int | float):
        return False
    fit = _as_integer(text) if isinstance(choice, int) else _as_number(text)
    return fit.cost < _MISFIT and bool(fit.value == choice)


def _is_same(value: Any, choice: Any) -> bool:
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


def _as_string(value: Any, schema: Mapping[str, Any]) -> Fit:
    if isinstance(value, str):
        refused = TEXT_REFUSED.get(schema.get("format", ""))
        if refused is not None and (refused[0].fullmatch(value) is not None) is refused[1]:
            return Fit(value, _MISFIT, (RejectedValue((), refused[2]),))
        return Fit(value)
    if schema.get("format") == "decimal" and isinstance(value, int) and not isinstance(value, bool):
        return Fit(value)  # of any size, unlike a float
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
        except ValueError:  # more digits than Python converts
            pass
    return Fit(value, _MISFIT)


def _as_number(value: Any) -> Fit:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and math.isfinite(number := float(value)):
        return Fit(number, 2)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Fit(value, _MISFIT)
    if abs(value) > sys.float_info.max and isinstance(value, int):  # pydantic makes it infinite
        return Fit(value, _MISFIT, (RejectedValue((), FINITE),))
    return Fit(value)


def _as_boolean(value: Any) -> Fit:
    if isinstance(value, bool):
        return Fit(value)
    return Fit(value == "true", 2) if value in ("true", "false") else Fit(value, _MISFIT)


def _as_null(value: Any) -> Fit:
    return Fit(value, 0 if value is None else _MISFIT)


_SCALARS: Mapping[str, Callable[[Any], Fit]] = {
    "integer": _as_integer,
    "number": _as_number,
    "boolean": _as_boolean,
    "null": _as_null,
}

FINITE = "should be a finite number"
"""What is expected instead of a number that JSON does not have."""


def is_non_finite(value: Any) -> bool:
    """A float that JSON does not have."""
    return isinstance(value, float) and not math.isfinite(value)


def paths_of_non_finite(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the non-finite numbers in some JSON data are."""
    if isinstance(value, dict):
        for name, field in value.items():
            yield from paths_of_non_finite(field, (*path, name))
    elif isinstance(value, list | tuple | set | frozenset):
        for i, item in enumerate(value):
            yield from paths_of_non_finite(item, (*path, i))
    elif is_non_finite(value):
        yield path

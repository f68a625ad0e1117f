"""Fields of forms: the values that they accept.

Source: MCP 2025-11-25, Elicitation, ``PrimitiveSchemaDefinition``. A server may send any schema: malformed parts of it
are ignored, and fields of other types accept any value of their type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AnyUrl, StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def compiled_pattern(pattern: str) -> TypeAdapter[str] | None:
    """Return a validator without backtracking, since patterns and texts are foreign; None if there is none."""
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:
        return None


def _check_pattern(text: str, pattern: str) -> None:
    """Raise a ValueError if a text does not match; what asks checks other patterns itself."""
    if (adapter := compiled_pattern(pattern)) is not None:
        adapter.validate_python(text)


def _check_date(text: str) -> None:
    if date.fromisoformat(text).isoformat() != text:
        raise ValueError("a date of ISO 8601 that RFC 3339 does not have")


def _check_time(text: str) -> None:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("no time zone")
    _check_date(text[:10])


FORMATS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "date": (_check_date, "a date such as 2026-01-31"),
    "date-time": (_check_time, "a time such as 2026-01-31T12:00:00Z"),
    "uri": (AnyUrl, "a URI such as https://example.com"),
    "email": (lambda text: _check_pattern(text, r"^[^@\s]+@[^@\s]+$"), "an address such as ada@example.com"),
}
"""Formats of text, each with a function that raises a ValueError, and a description."""


_NUMBER_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LIMITS = {
    **dict.fromkeys(("minimum", "minLength", "minItems"), "at least"),
    **dict.fromkeys(("maximum", "maxLength", "maxItems"), "at most"),
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}


def _exact(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a field accepts."""

    value: Any
    label: str
    """Title for people; the value itself without one."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    choices: Sequence[Choice] = ()
    """The accepted values; empty if they are not listed."""

    @property
    def kind(self) -> str:
        """JSON type of the value; ``any`` for an unknown one."""
        kind = self.schema.get("type")
        return kind if isinstance(kind, str) else "string" if self.choices else "any"

    def problem(self, value: Any) -> str | None:
        """The reason for refusing a value; None if it is accepted."""
        if self._accepts(value):
            return None
        return f"expected {self.expected()}, not {clip(json.dumps(value, ensure_ascii=False))}"

    def _accepts(self, value: Any) -> bool:
        if self.kind == "array":
            is_list = isinstance(value, list) and self._is_within(len(value), "minItems", "maxItems")
            return is_list and (not self.choices or all(map(self._is_choice, value))) and self._is_distinct(value)
        if self.choices:
            return self._is_choice(value)
        match self.kind:
            case "string":
                is_kind = isinstance(value, str) and self._is_text(value)
            case "boolean":
                is_kind = isinstance(value, bool)
            case "integer" | "number" as kind:
                is_whole = isinstance(value, int) and not isinstance(value, bool)
                is_float = isinstance(value, float) and isfinite(value)
                is_number = is_whole or (is_float and (kind == "number" or value.is_integer()))  # 1.0 is an integer
                is_kind = is_number and self._is_within(value, "minimum", "maximum") and self._is_in_steps(value)
            case "object":
                is_kind = isinstance(value, dict)
            case _:
                is_kind = True
        return is_kind

    def _is_choice(self, value: Any) -> bool:
        """True for one of the choices; 1 is not true, as in JSON."""
        return any(
            each.value == value and isinstance(each.value, bool) is isinstance(value, bool) for each in self.choices
        )

    def _is_text(self, text: str) -> bool:
        form, pattern = self.schema.get("format"), self.schema.get("pattern")
        try:
            if isinstance(form, str) and form in FORMATS:
                FORMATS[form][0](text)
            if isinstance(pattern, str):
                _check_pattern(text, pattern)
        except ValueError:
            return False
        return self._is_within(len(text), "minLength", "maxLength")

    def _is_within(self, amount: float, least: str, most: str) -> bool:
        low, high = self._number(least), self._number(most)
        return (low is None or amount >= low) and (high is None or amount <= high)

    def _is_in_steps(self, number: float) -> bool:
        """Check the keywords of JSON Schema for numbers that MCP's forms do not have, and servers send nevertheless."""
        above, below, step = map(self._number, ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
        is_between = (above is None or number > above) and (below is None or number < below)
        return is_between and (not step or _exact(number) % _exact(step) == 0)

    def _is_distinct(self, values: Sequence[Any]) -> bool:
        is_set = self.schema.get("uniqueItems") is True
        return not is_set or len({json.dumps(each, sort_keys=True) for each in values}) == len(values)

    def _number(self, key: str) -> float | None:
        value = self.schema.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        return value if is_number else None

    def expected(self) -> str:
        """Describe the accepted values."""
        if self.choices:
            different = "different " if self.schema.get("uniqueItems") is True else ""
            several = f"{different}choices separated by commas{self._limits('minItems', 'maxItems')}"
            return several if self.kind == "array" else "one of the choices"
        form, pattern = self.schema.get("format"), self.schema.get("pattern")
        match self.kind:
            case "string" if isinstance(form, str) and form in FORMATS:
                expected = FORMATS[form][1]
            case "string":
                matching = f" matching {clip(pattern)}" if isinstance(pattern, str) else ""
                expected = f"text{self._limits('minLength', 'maxLength', unit=' characters')}{matching}"
            case "boolean":
                expected = "yes or no"
            case "integer" | "number" as kind:
                expected = {"integer": "a whole number", "number": "a number"}[kind] + self._limits(*_NUMBER_LIMITS)
                if (step := self._number("multipleOf")) is not None:
                    expected += f" in steps of {clip(str(step), 30)}"
            case "array" | "object" as kind:
                expected = f"JSON of an {kind}"
            case _:
                expected = "JSON"
        return expected

    def _limits(self, *keys: str, unit: str = "") -> str:
        limits = [f"{_LIMITS[key]} {clip(str(limit), 30)}" for key in keys if (limit := self._number(key)) is not None]
        return f" of {' and '.join(limits)}{unit}" if limits else ""


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields of a form, in its order."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    names = required if isinstance(required, list) else []
    return [
        FormField(name, each, name in names, choices_of(each))
        for name, each in properties.items()
        if isinstance(each, dict)
    ]


def choices_of(schema: Mapping[str, Any]) -> list[Choice]:
    """The values that a field accepts; none if they are not listed."""
    if schema.get("type") == "array":
        items = schema.get("items")
        return choices_of({**items, "type": "string"}) if isinstance(items, dict) else []
    for key in ("oneOf", "anyOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and all(isinstance(each, dict) and "const" in each for each in branches):
            return [Choice(each["const"], _label(each.get("title"), each["const"])) for each in branches]
    if "const" in schema:
        return [Choice(schema["const"], _label(schema.get("title"), schema["const"]))]
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list):
        return []
    named = names if isinstance(names, list) and len(names) == len(values) else values
    return [Choice(value, _label(name, value)) for value, name in zip(values, named, strict=True)]


def _label(title: Any, value: Any) -> str:
    return " ".join(title.split()) if isinstance(title, str) else typed(value)


def typed(value: Any) -> str:
    """A value as a user types it."""
    return value if isinstance(value, str) else json.dumps(value)

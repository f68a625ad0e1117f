"""Fields of forms: the values that they accept.

Source: MCP 2025-11-25, Elicitation, ``PrimitiveSchemaDefinition``. A server may send any schema: malformed parts of it
are ignored, and fields of other types accept any value of their type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
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


def _check_time(text: str) -> None:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("no time zone")


FORMATS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "date": (date.fromisoformat, "a date such as 2026-01-31"),
    "date-time": (_check_time, "a time such as 2026-01-31T12:00:00Z"),
    "uri": (AnyUrl, "a URI such as https://example.com"),
    "email": (lambda text: _check_pattern(text, r"^[^@\s]+@[^@\s]+$"), "an address such as ada@example.com"),
}
"""Formats of text, each with a function that raises a ValueError, and a description."""


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
            return is_list and not (self.choices and not all(map(self._is_choice, value)))
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
                is_kind = is_number and self._is_within(value, "minimum", "maximum")
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

    def _number(self, key: str) -> float | None:
        value = self.schema.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def expected(self) -> str:
        """Describe the accepted values."""
        if self.choices:
            several = f"choices separated by commas{self._limits('minItems', 'maxItems')}"
            return several if self.kind == "array" else "one of the choices"
        form, pattern = self.schema.get("format"), self.schema.get("pattern")
        match self.kind:
            case "string" if isinstance(form, str) and form in FORMATS:
                expected = FORMATS[form][1]
            case "string":
                matching = f" matching {clip(pattern)}" if isinstance(pattern, str) else ""
                expected = f"text{self._limits('minLength', 'maxLength', ' characters')}{matching}"
            case "boolean":
                expected = "yes or no"
            case "integer" | "number" as kind:
                expected = {"integer": "a whole number", "number": "a number"}[kind] + self._limits(
                    "minimum", "maximum"
                )
            case "array" | "object" as kind:
                expected = f"JSON of an {kind}"
            case _:
                expected = "JSON"
        return expected

    def _limits(self, least: str, most: str, unit: str = "") -> str:
        limits = [
            f"{word} {clip(str(limit), 30)}" for word, key in (("at least", least), ("at most", most))
            if (limit := self._number(key)) is not None
        ]  # fmt: skip
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

"""Fields of a form that a tool asks to fill in, and the values that a user types for them.

Source: MCP 2025-11-25, Elicitation, ``PrimitiveSchemaDefinition``. A server may send any schema; malformed parts are
ignored, and fields of other types take JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AnyUrl, StringConstraints, TypeAdapter
from pydantic_core import SchemaError

from bridge.errors import BridgeError
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def _check_pattern(text: str, pattern: str) -> None:
    """Raise a ValueError if a text does not match; without backtracking, since the pattern is foreign."""
    try:
        adapter = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except SchemaError:  # no pattern of this kind: the server checks it
        return
    adapter.validate_python(text)


def _check_time(text: str) -> None:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("no time zone")


_FORMATS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "date": (date.fromisoformat, "a date such as 2026-01-31"),
    "date-time": (_check_time, "a time such as 2026-01-31T12:00:00Z"),
    "uri": (AnyUrl, "a URI such as https://example.com"),
    "email": (lambda text: _check_pattern(text, r"^[^@\s]+@[^@\s]+$"), "an address such as ada@example.com"),
}
_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})


class FieldError(BridgeError):
    """A typed text is no value of a field; the message says what is expected."""


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

    @property
    def has_default(self) -> bool:
        """True if the schema has a default that the field accepts."""
        return "default" in self.schema and self._problem(self.schema["default"]) is None

    @property
    def default_text(self) -> str:
        """The default as it could be typed."""
        default = self.schema["default"]
        if isinstance(default, list) and self.choices:
            return ", ".join(map(str, default))
        return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)

    def described(self) -> str:
        """Name, title, type, limits and choices, for people."""
        notes = [self._expected(), *([] if self.is_required else ["optional"])]
        title, description = (self.schema.get(key) for key in ("title", "description"))
        shown = f" ({title})" if isinstance(title, str) and title != self.name else ""
        lines = [f"{self.name}{shown}: {', '.join(notes)}"]
        if isinstance(description, str):
            lines.append(f"  {' '.join(description.split())}")
        for number, choice in enumerate(self.choices, 1):
            value = choice.value if isinstance(choice.value, str) else json.dumps(choice.value)
            lines.append(f"  {number}. {value}" + (f"  {choice.label}" if choice.label != value else ""))
        return clip("\n".join(lines), 8_000)

    def read(self, text: str) -> Any:
        """Parse a typed text.

        Raises:
            FieldError: It is no value of this field.
        """
        if not text.strip():
            raise FieldError(f"a value is required: {self._expected()}")
        value = self._parsed(text)
        if (problem := self._problem(value)) is not None:
            raise FieldError(problem)
        return value

    def _parsed(self, text: str) -> Any:
        kind, stripped = self.kind, text.strip()
        if self.choices and kind == "array":
            return [self._chosen(part.strip()) for part in text.split(",") if part.strip()]
        if self.choices:
            return self._chosen(stripped)
        if kind == "string":
            return text
        if kind == "boolean" and stripped.lower() in _YES | _NO:
            return stripped.lower() in _YES
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise FieldError(f"expected {self._expected()}, not {clip(text)!r}") from None
        return int(value) if kind == "integer" and isinstance(value, float) and value.is_integer() else value

    def _chosen(self, text: str) -> Any:
        for matches in (str.__eq__, lambda a, b: a.casefold() == b.casefold()):
            for choice in self.choices:
                if matches(_typed(choice.value), text) or matches(choice.label, text):
                    return choice.value
        if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= len(self.choices):
            return self.choices[int(text[:9]) - 1].value
        raise FieldError(f"{clip(text)!r} is no choice; type a number from 1 to {len(self.choices)}, or a value")

    def _problem(self, value: Any) -> str | None:
        """Why a value is not accepted; None if it is."""
        if self._accepts(value):
            return None
        return f"expected {self._expected()}, not {clip(json.dumps(value, ensure_ascii=False))}"

    def _accepts(self, value: Any) -> bool:
        if self.kind == "array":
            is_list = isinstance(value, list) and self._is_within(len(value), "minItems", "maxItems")
            return is_list and not (self.choices and any(each not in self._values() for each in value))
        if self.choices:
            return value in self._values()
        match self.kind:
            case "string":
                is_kind = isinstance(value, str) and self._is_text(value)
            case "boolean":
                is_kind = isinstance(value, bool)
            case "integer" | "number" as kind:
                is_whole = isinstance(value, int) and not isinstance(value, bool)
                is_number = is_whole or (kind == "number" and isinstance(value, float) and isfinite(value))
                is_kind = is_number and self._is_within(value, "minimum", "maximum")
            case "object":
                is_kind = isinstance(value, dict)
            case _:
                is_kind = True
        return is_kind

    def _values(self) -> list[Any]:
        return [choice.value for choice in self.choices]

    def _is_text(self, text: str) -> bool:
        form, pattern = self.schema.get("format"), self.schema.get("pattern")
        try:
            if isinstance(form, str) and form in _FORMATS:
                _FORMATS[form][0](text)
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

    def _expected(self) -> str:
        if self.choices:
            several = f"choices separated by commas{self._limits('minItems', 'maxItems')}"
            return several if self.kind == "array" else "one of the choices"
        form, pattern = self.schema.get("format"), self.schema.get("pattern")
        match self.kind:
            case "string" if isinstance(form, str) and form in _FORMATS:
                expected = _FORMATS[form][1]
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
        FormField(name, each, name in names, _choices(each))
        for name, each in properties.items()
        if isinstance(each, dict)
    ]


def _choices(schema: Mapping[str, Any]) -> list[Choice]:
    if schema.get("type") == "array":
        items = schema.get("items")
        return _choices({**items, "type": "string"}) if isinstance(items, dict) else []
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
    return " ".join(title.split()) if isinstance(title, str) else _typed(value)


def _typed(value: Any) -> str:
    """A value as a user types it."""
    return value if isinstance(value, str) else json.dumps(value)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)

"""Values that a user types for the fields of a form that a tool asks to fill in.

Fields of other types than MCP's take JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError
from bridge.text import clip
from bridge.tools import form_fields as fields

if TYPE_CHECKING:
    from collections.abc import Mapping

_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})


class FieldError(BridgeError):
    """A typed text is no value of a field; the message says what is expected."""


class FormField(fields.FormField):
    """A field of a form, whose value is typed."""

    __slots__ = ()

    @property
    def has_default(self) -> bool:
        """True if the schema has a default that the field accepts."""
        return "default" in self.schema and self.problem(self.schema["default"]) is None

    @property
    def default_text(self) -> str:
        """The default as it could be typed."""
        default = self.schema["default"]
        if isinstance(default, list) and self.choices:
            return ", ".join(map(str, default))
        return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)

    def described(self) -> str:
        """Name, title, type, limits and choices, for people."""
        notes = [self.expected(), *([] if self.is_required else ["optional"])]
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
            raise FieldError(f"a value is required: {self.expected()}")
        value = self._parsed(text)
        if (problem := self.problem(value)) is not None:
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
            raise FieldError(f"expected {self.expected()}, not {clip(text)!r}") from None
        return int(value) if kind == "integer" and isinstance(value, float) and value.is_integer() else value

    def _chosen(self, text: str) -> Any:
        for matches in (str.__eq__, lambda a, b: a.casefold() == b.casefold()):
            for choice in self.choices:
                if matches(fields.typed(choice.value), text) or matches(choice.label, text):
                    return choice.value
        if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= len(self.choices):
            return self.choices[int(text[:9]) - 1].value
        raise FieldError(
            f"{clip(text)!r} is not one of the choices; type a number from 1 to {len(self.choices)}, or a value"
        )


def form_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """The fields of a form, in its order."""
    return [FormField(each.name, each.schema, each.is_required, each.choices) for each in fields.form_fields(schema)]


def _refuse(constant: str) -> Any:
    raise ValueError(constant)

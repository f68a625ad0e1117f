"""Words: what messages are made of."""

from __future__ import annotations

import json
import re

_INVISIBLE = r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"
_DECEIVING = re.compile(f"[{_INVISIBLE}]")
"""Characters that are printable to Unicode and show nothing, but for two selectors that emoji need."""


def counted(number: float, noun: str) -> str:
    """A number of things: ``1 tool``, ``2 tools``, ``0.5 seconds``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def visible(text: str) -> str:
    """Text of others, for a terminal: every character that is no tab or line end and shows nothing is escaped.

    Escaped are what a terminal would obey, and what deceives a reader: marks of writing direction, invisible letters.
    """
    if _is_visible(text):
        return text
    return "".join(
        char if char in "\n\t" or _is_visible(char) else char.encode("unicode_escape").decode()
        for char in text.replace("\r\n", "\n")
    )


def escaped_json(text: str) -> str:
    """JSON in which characters that show nothing are escaped as JSON escapes them: it stays the same JSON."""
    if _is_visible(text):
        return text
    return "".join(char if char == "\n" or _is_visible(char) else json.dumps(char)[1:-1] for char in text)


def _is_visible(text: str) -> bool:
    return text.isprintable() and _DECEIVING.search(text) is None

"""Truncating, escaping and pluralising text for messages and logs.

Words: what messages are made of.

Log text: values of clients and servers, cut to a length and encoded as one line of JSON.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from difflib import get_close_matches
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_NAME_CHARS = 128

_MAX_EXAMINED = 10_000

_MAX_COMPARED = 20

_INVISIBLE = r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef"

_DECEIVING = re.compile(f"[{_INVISIBLE}]")
"""Characters that are printable to Unicode and show nothing, but for two selectors that emoji need."""

MAX_TEXT_CHARS = 256
"""Maximum characters of a text that a client or server chose."""

_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")
"""Characters that JSON does not escape and that control a terminal or end a line."""

_MAX_SHOWN_CHARS = 200


def with_count(number: float, noun: str) -> str:
    """A number of things: ``1 tool``, ``2 tools``, ``0.5 seconds``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """The known names that are most like a name, the most similar first; case makes no difference.

    Callers may send any name, so the work is bounded: of the first 10,000 known names the 20 whose length and letters
    are nearest are compared, and a name of more than 128 characters with none.

    Args:
        name: A name that is not known.
        known: The names that are.
        count: How many to return at most; fewer where fewer are similar.
    """
    if len(name) > _MAX_NAME_CHARS:
        return []
    wanted = name.casefold()
    letters = frozenset(wanted)

    def distance(other: str) -> int:
        return abs(len(other) - len(wanted)) + len(letters.symmetric_difference(other.casefold()))

    candidates = nsmallest(_MAX_COMPARED, islice(known, _MAX_EXAMINED), key=distance)
    by_spelling = {each[:_MAX_NAME_CHARS].casefold(): each for each in reversed(candidates)}
    return [by_spelling[spelling] for spelling in get_close_matches(wanted, by_spelling, n=count)]


def escape_controls(text: str) -> str:
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


def clip(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """The text, cut to a length; ``…`` marks the cut."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def to_json_line(value: Any) -> str:
    """Any value as one line of JSON; never raises."""
    try:
        text = to_json(value, fallback=repr, inf_nan_mode="null").decode()
    except ValueError:
        return _written_as_python_does(value)
    return _UNSEEN.sub(_escaped, text) if _UNSEEN.search(text) else text


def _written_as_python_does(value: Any) -> str:
    """JSON of values that pydantic refuses: lone surrogates, and very deep nesting."""
    try:
        finite = json.loads(json.dumps(value, default=repr), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return json.dumps(f"a {type(value).__name__} that cannot be written")


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def utc_time(seconds: float) -> str:
    """A time in seconds since 1970 as ISO 8601 text with milliseconds, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def short_repr(value: object) -> str:
    """A value as a person can take it in: at most 200 characters."""
    return truncate(repr(value), _MAX_SHOWN_CHARS)


def truncate(text: str, max_chars: int) -> str:
    """A text of so many characters at most; the last of one that was longer is ``…``."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"

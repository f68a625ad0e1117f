"""Helpers for the text of messages and logs: pluralise, suggest, escape and truncate."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from difflib import get_close_matches, unified_diff
from functools import lru_cache
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
"""Invisible characters that Unicode counts as printable, except two variation selectors that emoji need.
"""

MAX_TEXT_CHARS = 256
"""Default maximum length of text from clients and servers, in characters."""
CHARS_PER_TOKEN = 4
"""Average for English according to OpenAI and Anthropic; a token of other scripts holds fewer characters."""
_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")
"""Characters that JSON does not escape, but that control a terminal or end a line."""

_MAX_SHOWN_CHARS = 200


def with_count(number: float, noun: str) -> str:
    """Format a number with a noun: ``1 tool``, ``2 tools``, ``0.5 seconds``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Return the known names most similar to a name, at most ``count``, best first; case-insensitive.

    The work is bounded, since remote callers choose the name. Of the first 10,000 known names, the 20 nearest in length
    and letters are compared. A name longer than 128 characters has no match.
    """
    if len(name) > _MAX_NAME_CHARS:
        return []
    folded = name.casefold()
    letters = frozenset(folded)

    def distance(other: str) -> int:
        return abs(len(other) - len(folded)) + len(letters.symmetric_difference(other.casefold()))

    candidates = nsmallest(_MAX_COMPARED, islice(known, _MAX_EXAMINED), key=distance)
    by_folded_name = {candidate[:_MAX_NAME_CHARS].casefold(): candidate for candidate in reversed(candidates)}
    return [by_folded_name[match] for match in get_close_matches(folded, by_folded_name, n=count)]


def escape_controls(text: str) -> str:
    """Escape invisible characters in untrusted text for a terminal; tabs and line ends are kept.

    This covers control characters, and characters that mislead a reader: writing direction marks, invisible letters.
    """
    if _is_visible(text):
        return text
    return "".join(
        char if char in "\n\t" or _is_visible(char) else char.encode("unicode_escape").decode()
        for char in text.replace("\r\n", "\n")
    )


def escaped_json(text: str) -> str:
    """Escape invisible characters in JSON text with JSON's own escapes; the value is unchanged."""
    if _is_visible(text):
        return text
    return "\n".join(
        line if _is_visible(line) else "".join(each if _is_visible(each) else json.dumps(each)[1:-1] for each in line)
        for line in text.split("\n")
    )


def _is_visible(text: str) -> bool:
    return text.isprintable() and _DECEIVING.search(text) is None


def clip(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Truncate text to a length and append ``…``."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def diff_lines(before: Any, after: Any, before_label: str, after_label: str) -> list[str]:
    """Unified diff of two texts or JSON values, by line; None is empty."""
    return list(unified_diff(_lines(before), _lines(after), before_label, after_label, lineterm="", n=1))


def clip_lines(lines: list[str], max_lines: int) -> list[str]:
    """Return at most this many lines, and one with the number of further ones."""
    return lines if len(lines) <= max_lines else [*lines[:max_lines], f"… {len(lines) - max_lines} more lines"]


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)).splitlines()


def to_json_line(value: Any) -> str:
    """Serialize any value as one line of JSON; never raises."""
    try:
        text = to_json(value, fallback=repr, inf_nan_mode="null").decode()
    except ValueError:
        return _to_json_with_stdlib(value)
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _to_json_with_stdlib(value: Any) -> str:
    """Serialize values that pydantic rejects: lone surrogates and deeply nested containers."""
    try:
        finite = json.loads(json.dumps(value, default=repr), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return json.dumps(f"a {type(value).__name__} that cannot be serialized")


def utc_time(seconds: float) -> str:
    """Format seconds since 1970 as ISO 8601 with milliseconds, in UTC."""
    second, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_utc_second(second)}.{microseconds // 1000:03d}Z"


@lru_cache(maxsize=8)
def _utc_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for four ASCII characters, and one for each other character."""
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    wide = sum(not character.isascii() for character in text)
    return wide - (wide - len(text)) // CHARS_PER_TOKEN


def short_repr(value: object) -> str:
    """Return ``repr(value)`` truncated to 200 characters."""
    return clip(repr(value), _MAX_SHOWN_CHARS)


def utf8_text(text: str) -> str:
    """Make a text valid UTF-8: lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text

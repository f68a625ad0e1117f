"""Log text: values of clients and servers, cut to a length and encoded as one line of JSON."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

MAX_TEXT_CHARS = 256
"""Maximum characters of a text that a client or server chose."""

_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")
"""Characters that JSON does not escape and that control a terminal or end a line."""


def abridged(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """The text, cut to a length; ``…`` marks the cut."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def written(value: Any) -> str:
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

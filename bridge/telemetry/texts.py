"""Texts of others in lines of a log: within bounds, and never more than the line that they stand in."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic_core import to_json

MAX_TEXT_CHARS = 256
"""How much of a text is written that somebody else chose."""

_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")
"""What JSON lets stand as it is, and what a terminal obeys or a reader takes for the end of a line."""


def abridged(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """A text, or its beginning with ``…`` as the mark that it was cut."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def written(value: Any) -> str:
    """Anything as JSON, in one line; never raises, whatever a client put into it."""
    try:
        text = to_json(value, fallback=repr, inf_nan_mode="null").decode()
    except ValueError:
        return _written_as_python_does(value)
    return _UNSEEN.sub(_escaped, text) if _UNSEEN.search(text) else text


def _written_as_python_does(value: Any) -> str:
    """Half a character, which JSON can say only escaped, or what is nested very deep."""
    try:
        finite = json.loads(json.dumps(value, default=repr), parse_constant=lambda _: None)
        return json.dumps(finite, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return json.dumps(f"a {type(value).__name__} that cannot be written")


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"

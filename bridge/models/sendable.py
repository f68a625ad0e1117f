"""What can be sent: text and JSON data as UTF-8, whatever a model or a tool made of them before."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

if TYPE_CHECKING:
    from bridge.types import Json

_SURROGATE = re.compile(r"\\ud[89a-f]")


def sendable(text: str) -> str:
    """A text that UTF-8 can hold: halves of characters that found no other half become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def sendable_json(value: Any) -> Any:
    """JSON data whose texts UTF-8 can hold; the same object where all of them are."""
    text = json.dumps(value, default=dict)
    if not _SURROGATE.search(text):
        return value
    return json.loads(sendable(json.dumps(value, default=dict, ensure_ascii=False)))


def json_text(value: Any) -> str:
    """JSON data as compact text."""
    return sendable(json.dumps(value, default=dict, ensure_ascii=False, separators=(",", ":")))


def json_object(text: str) -> Json | None:
    """The JSON object that a text is; None where it is anything else."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
    except (ValueError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None

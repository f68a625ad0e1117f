"""JSON paths: a subset of RFC 9535 that takes time in proportion to the JSON, whatever the path.

``$``, ``.name``, ``['name']``, ``[3]``, ``[-1]``, ``[2:5]``, ``.*`` and ``[*]``; neither filters nor ``..``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEGMENT = re.compile(
    r"""
      \.(?P<name>[^\W\d][\w-]*)
    | \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]
    | \[(?P<index>-?\d{1,15})\]
    | \[(?P<start>-?\d{1,15})?:(?P<end>-?\d{1,15})?\]
    | (?P<all>\.\*|\[\*\])
    """,
    re.VERBOSE,
)
_FORMS = "write .name, ['name'], [0], [-1], [0:10], .* or [*]"


def values_at(value: Any, path: str) -> list[Any]:
    """Return what a path selects in JSON data, in its order; empty for nothing.

    Args:
        value: The data.
        path: The path; ``$`` at its beginning may be left out.

    Raises:
        ValueError: The path has another form; the message says where.
    """
    found = [value]
    for segment in _segments(path):
        found = [item for each in found for item in _selected(each, segment)]
    return found


def _segments(path: str) -> Iterator[re.Match[str]]:
    text = path.strip().removeprefix("$")
    if text and text[0] not in ".[":
        text = f".{text}"
    position = 0
    while position < len(text):
        segment = _SEGMENT.match(text, position)
        if segment is None:
            raise ValueError(f"{text[position : position + 40]!r} is not a part of a path: {_FORMS}")
        yield segment
        position = segment.end()


def _selected(value: Any, segment: re.Match[str]) -> list[Any]:
    if segment["all"]:
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    name = segment["name"] or (segment["quoted"] and re.sub(r"\\(.)", r"\1", segment["quoted"][1:-1]))
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    if segment["index"] is not None:
        index = int(segment["index"])
        return [value[index]] if -len(value) <= index < len(value) else []
    start, end = (None if segment[part] is None else int(segment[part]) for part in ("start", "end"))
    return value[start:end]

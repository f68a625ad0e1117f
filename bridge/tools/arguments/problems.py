"""Argument problems in words: pydantic's validation errors and rejected values, with location and received value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import ArgumentProblem
from bridge.text import clip
from bridge.tools.arguments.coercion import RejectedValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails, ValidationError

    from bridge.tools.arguments.coercion import Path

MAX_PROBLEMS = 100
"""Maximum number of problems in one error."""
_RECEIVED_CHARS = 200
_JSONS = {"True": "true", "False": "false", "None": "null"}
_PYTHONS = re.compile(r"'(?:[^'\\]|\\.)*'|\b(?:True|False|None)\b")
"""Python's spelling of JSON constants; quoted strings match as well, so that constants inside them are left alone."""


def refusals_of(error: ValidationError, value: Any) -> Iterator[RejectedValue]:
    """Convert pydantic's errors, joining the alternatives for one location."""
    expected_by_path: dict[Path, list[str]] = {}
    for details in error.errors(include_url=False, include_input=False):
        path = _path_of(details, value)
        expected = _expected_by(details)
        if expected not in expected_by_path.setdefault(path, []):
            expected_by_path[path].append(expected)
    for path, alternatives in expected_by_path.items():
        first, *others = alternatives
        yield RejectedValue(path, " or ".join([first, *(other.removeprefix("should be ") for other in others)]))


def _path_of(details: ErrorDetails, value: Any) -> Path:
    """Return the location of an error: pydantic's ``loc`` without the names of the union members that it tried."""
    path: list[str | int] = []
    for i, step in enumerate(details["loc"]):
        if isinstance(value, dict) and str(step) in value:
            path.append(str(step))
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            path.append(step)
            value = value[step]
        elif details["type"] == "missing" and i == len(details["loc"]) - 1:
            path.append(step)
    return tuple(path)


def _expected_by(details: ErrorDetails) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return "is not known here"
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "literal_error":
        message = _PYTHONS.sub(lambda match: _JSONS.get(match[0], match[0]), message)
    return (
        f"should be {message.removeprefix('Input should be ')}" if message.startswith("Input should be ") else message
    )


def problems_of(refusals: list[RejectedValue], *values: Any) -> list[ArgumentProblem]:
    """Describe the problems with the received values; a location is looked up in the first value that has it."""
    problems = []
    for path, expected in refusals[:MAX_PROBLEMS]:
        received = next((text for value in values for text in _received_at(path, value)), None)
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        problems.append(ArgumentProblem("".join(steps).removeprefix("."), expected, received))
    if len(refusals) > MAX_PROBLEMS:
        problems.append(ArgumentProblem("", f"and {len(refusals) - MAX_PROBLEMS} more problems"))
    return problems


def _received_at(path: Path, value: Any) -> Iterator[str]:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return
    yield shown(value)


def shown(value: Any) -> str:
    """Return a value as JSON, truncated to 200 characters."""
    return clip(to_json(printable(value) if isinstance(value, str) else value).decode(), _RECEIVED_CHARS)


def printable(text: str) -> str:
    """Escape lone surrogates, which cannot be encoded as UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def reason_of(error: Exception) -> str:
    """Return the message of a JSON error."""
    return printable(str(error).removeprefix("Error serializing to JSON: ")) or type(error).__name__

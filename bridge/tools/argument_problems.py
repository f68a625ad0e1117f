"""What is wrong with arguments, in words: pydantic's errors and our refusals, with the place and what came."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from bridge.errors import ArgumentProblem
from bridge.text import truncate
from bridge.tools.coercion import RejectedValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails, ValidationError

    from bridge.tools.coercion import Path

MAX_PROBLEMS = 100
"""How many problems an error tells of."""
_RECEIVED_CHARS = 200
_JSONS = {"True": "true", "False": "false", "None": "null"}
_PYTHONS = re.compile(r"'(?:[^'\\]|\\.)*'|\b(?:True|False|None)\b")
"""What JSON writes in another way, and texts, in which nothing is to be found."""


def refusals_of(error: ValidationError, value: Any) -> Iterator[RejectedValue]:
    """What pydantic says is wrong, each place once: its alternatives there are joined."""
    said: dict[Path, list[str]] = {}
    for details in error.errors(include_url=False, include_input=False):
        path = _path_of(details, value)
        words = _words_of(details)
        if words not in said.setdefault(path, []):
            said[path].append(words)
    for path, alternatives in said.items():
        first, *others = alternatives
        yield RejectedValue(path, " or ".join([first, *(other.removeprefix("should be ") for other in others)]))


def _path_of(details: ErrorDetails, value: Any) -> Path:
    """Where an error is: pydantic's location without the names of the types that it tried."""
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


def _words_of(details: ErrorDetails) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return "is not known here"
    said = details["msg"].removeprefix("Value error, ")
    if details["type"] == "literal_error":
        said = _PYTHONS.sub(lambda match: _JSONS.get(match[0], match[0]), said)
    return f"should be {said.removeprefix('Input should be ')}" if said.startswith("Input should be ") else said


def problems_of(refusals: list[RejectedValue], *values: Any) -> list[ArgumentProblem]:
    """The problems with what came: a place is looked up in the first of the values that has it."""
    problems = []
    for path, expected in refusals[:MAX_PROBLEMS]:
        found = next((each for value in values for each in _found(path, value)), None)
        problems.append(ArgumentProblem(_written(path), expected, found))
    if len(refusals) > MAX_PROBLEMS:
        problems.append(ArgumentProblem("", f"and {len(refusals) - MAX_PROBLEMS} more problems"))
    return problems


def _found(path: Path, value: Any) -> Iterator[str]:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return
    yield shown(value)


def _written(path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def shown(value: Any) -> str:
    """A value as JSON, cut at 200 characters."""
    return truncate(to_json(printable(value) if isinstance(value, str) else value).decode(), _RECEIVED_CHARS)


def printable(text: str) -> str:
    """A text without halves of characters, which nobody could send."""
    return text.encode(errors="backslashreplace").decode()


def reason_of(error: Exception) -> str:
    """Why something is no JSON, in the words of the error."""
    return printable(str(error).removeprefix("Error serializing to JSON: ")) or type(error).__name__

"""Findings: what is wrong, and what is doubtful, in a configuration while it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

_IN_WORDS = {
    "inheritEnv": "should be 'minimal', 'all' or a list of names of variables",
    "prefix": "should be made of letters, digits, '_', '-' and '.'",
}


@dataclass(slots=True)
class Findings:
    """Collects every problem and warning, so that all are told at once."""

    problems: list[ConfigProblem] = field(default_factory=list)
    """What makes the configuration unusable."""
    warnings: list[str] = field(default_factory=list)
    """What the configuration can be used in spite of, each a sentence."""

    def problem(self, message: str, *, server: str | None = None, key: str | None = None) -> None:
        """Note what is wrong, once."""
        if (problem := ConfigProblem(message, server, key)) not in self.problems:
            self.problems.append(problem)

    def warning(self, message: str, *, server: str | None = None, key: str | None = None) -> None:
        """Note what is doubtful, placed in the words of a problem."""
        self.warnings.append(str(ConfigProblem(message, server, key)))

    def invalid(
        self, error: ValidationError, *, server: str | None = None, within: str = "", written: Mapping[str, str]
    ) -> None:
        """Note what pydantic found, without the values that it found it in.

        Args:
            error: What it found.
            server: The server that was judged.
            within: Where in the configuration the judged value stands.
            written: How each key was written, where that differs from our own spelling.
        """
        found: dict[str, str] = {}
        for detail in error.errors(include_url=False, include_input=False, include_context=False):
            key, *rest = detail["loc"] or ("",)
            if (words := _IN_WORDS.get(str(key))) is not None:
                rest = []
            place = _path(within, written.get(str(key), key), *rest)
            found.setdefault(place, words or _plain(detail["msg"]))
        for place, message in found.items():
            self.problem(message, server=server, key=place or None)


def kind_of(value: Any) -> str:
    """What kind of JSON value it is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


def _path(*parts: str | int) -> str:
    joined = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts if part != "")
    return joined.removeprefix(".")


def _plain(message: str) -> str:
    return (
        message.removeprefix("Value error, ")
        .replace("Input should be", "should be")
        .replace("Field required", "is missing")
    )

"""JSON with comments; diagnostics.

Findings: what is wrong, and what is doubtful, in a configuration while it is read.

JSON as editors write it: comments and trailing commas are allowed, and a key that stands twice is remembered.

What JSON does not know is blanked out character by character, so that every position in an error is the file's own;
the rest is the standard library's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from bridge.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

_IN_WORDS = {
    "inheritEnv": "should be 'minimal', 'all' or a list of names of variables",
    "prefix": "should be made of letters, digits, '_', '-' and '.'",
}

_STRING = r'"(?:\\.|[^"\\])*+"?'

_COMMENT = re.compile(rf"(?P<kept>{_STRING})|/\*.*?\*/|//[^\r\n]*", re.DOTALL)

_TRAILING_COMMA = re.compile(rf"(?P<kept>{_STRING}|[\[{{,:]\s*+,)|,(?=\s*+[\]}}])", re.DOTALL)

_VISIBLE = re.compile(r"[^\r\n]")


@dataclass(slots=True)
class Diagnostics:
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


def json_type_name(value: Any) -> str:
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


class JsonObject(dict[str, Any]):
    """An object that knows which of its keys stood in the text more than once; the last value is kept."""

    repeated: tuple[str, ...] = ()
    """The keys that stood more than once, each named once."""


def parse_jsonc(text: str, source: str) -> Any:
    """Read JSON with comments and trailing commas.

    Args:
        text: The text.
        source: What to call it in an error.

    Returns:
        The value; objects are `JsonObject`.

    Raises:
        ConfigError: It is not JSON; the problem has line and column.
    """
    try:
        return json.loads(blank_comments(text), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = ConfigProblem(f"not JSON: {error.msg}", line=error.lineno, column=error.colno)
    except RecursionError:
        problem = ConfigProblem("not a configuration: it is nested too deeply")
    except ValueError as error:
        problem = ConfigProblem(f"not JSON: {error}")
    raise ConfigError(source, [problem])


def blank_comments(text: str) -> str:
    """The text with blanks for every comment and trailing comma, so that each position is that of the text."""
    return _TRAILING_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))


def repeated_keys(value: Any) -> tuple[str, ...]:
    """The keys that stood more than once in the text of an object; none where that is not known."""
    return value.repeated if isinstance(value, JsonObject) else ()


def _blanked(match: re.Match[str]) -> str:
    kept: str | None = match["kept"]
    return kept if kept is not None else _VISIBLE.sub(" ", match[0])


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    value = JsonObject(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        value.repeated = tuple(key for key in value if keys.count(key) > 1)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")

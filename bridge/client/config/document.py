"""JSON with comments, and diagnostics of a configuration.

Comments and trailing commas are replaced by blanks, so positions in errors are those of the file; the standard library
parses the rest. Repeated keys are recorded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from bridge.errors import ConfigError, ConfigProblem
from bridge.wire.extension import TASKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

EXTENSION_RULE = (
    "must be an object with the settings of each extension, by identifiers such as 'com.example/colours'; "
    f"{TASKS.id!r} is built in"
)
"""Explanation of what extensions may be configured."""

_IN_WORDS = {
    "extensions": EXTENSION_RULE,
    "inheritEnv": "must be 'minimal', 'all' or a list of variable names",
    "prefix": "may contain only letters, digits, '_', '-' and '.'",
}

_JSON_NAMES = {
    "string": "text",
    "list": 'a list, such as ["one", "two"]',
    "dictionary": "an object",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}

_STRING = r'"(?:\\.|[^"\\])*+"?'
_COMMENT = re.compile(rf"(?P<kept>{_STRING})|/\*.*?\*/|//[^\r\n]*", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"(?P<kept>{_STRING}|[\[{{,:]\s*+,)|,(?=\s*+[\]}}])", re.DOTALL)
_VISIBLE = re.compile(r"[^\r\n]")


@dataclass(slots=True)
class Diagnostics:
    """Collects all problems and warnings, to report them together."""

    problems: list[ConfigProblem] = field(default_factory=list)
    """Problems that make the configuration unusable."""
    warnings: list[str] = field(default_factory=list)
    """Warnings, each a sentence."""

    def problem(self, message: str, *, server: str | None = None, key: str | None = None) -> None:
        """Add a problem, once."""
        if (problem := ConfigProblem(message, server, key)) not in self.problems:
            self.problems.append(problem)

    def warning(self, message: str, *, server: str | None = None, key: str | None = None) -> None:
        """Add a warning, formatted like a problem."""
        self.warnings.append(str(ConfigProblem(message, server, key)))

    def invalid(
        self, error: ValidationError, *, server: str | None = None, within: str = "", written: Mapping[str, str]
    ) -> None:
        """Add pydantic's validation errors of a value at the path `within`, without the invalid values.

        `written` maps canonical keys to their original spelling.
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
    """Name of the JSON type of a value."""
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
    for pydantic_name, json_name in _JSON_NAMES.items():
        message = message.replace(f"a valid {pydantic_name}", json_name)
    return (
        message.removeprefix("Value error, ")
        .replace("Input should be", "must be")
        .replace("Extra inputs are not permitted", "is not a known key: correct its spelling, or remove it")
        .replace("Field required", "is missing")
    )


class JsonObject(dict[str, Any]):
    """Object that records keys that were repeated in the text, of which the last value is kept, or translated."""

    repeated: tuple[str, ...] = ()
    """The repeated keys, each once."""
    translated: Mapping[str, str] = MappingProxyType({})
    """Keys of a host by the keys, or paths such as ``headers.X``, that they were translated to, also absent ones."""


def parse_jsonc(text: str, source: str) -> Any:
    """Parse JSON with comments and trailing commas.

    Returns:
        The value; objects are `JsonObject`.

    Raises:
        ConfigError: The text is not JSON; the problem has line and column.
    """
    if not text.strip():
        problem = ConfigProblem('it is empty; a configuration without servers is {"mcpServers": {}}', line=1, column=1)
        raise ConfigError(source, [problem])
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
    """Replace every comment and trailing comma by blanks; positions are unchanged."""
    return _TRAILING_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))


def comments(text: str) -> list[str]:
    """Comments of a text in their order."""
    return [found[0] for found in _COMMENT.finditer(text) if found["kept"] is None]


def repeated_keys(value: Any) -> tuple[str, ...]:
    """Keys that were repeated in the text of an object; empty if unknown."""
    return value.repeated if isinstance(value, JsonObject) else ()


def translated_keys(value: Any) -> Mapping[str, str]:
    """Keys of a host by those that they were translated to; empty for an entry of another one."""
    return value.translated if isinstance(value, JsonObject) else {}


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

"""JSON as editors write it: comments and trailing commas are allowed, and a key that stands twice is remembered.

What JSON does not know is blanked out character by character, so that every position in an error is the file's own;
the rest is the standard library's.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from bridge.errors import ConfigError, ConfigProblem

_STRING = r'"(?:\\.|[^"\\])*+"?'
_COMMENT = re.compile(rf"(?P<kept>{_STRING})|/\*.*?\*/|//[^\r\n]*", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"(?P<kept>{_STRING}|[\[{{,:]\s*+,)|,(?=\s*+[\]}}])", re.DOTALL)
_VISIBLE = re.compile(r"[^\r\n]")


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
        return json.loads(plain_json(text), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = ConfigProblem(f"not JSON: {error.msg}", line=error.lineno, column=error.colno)
    except RecursionError:
        problem = ConfigProblem("not a configuration: it is nested too deeply")
    except ValueError as error:
        problem = ConfigProblem(f"not JSON: {error}")
    raise ConfigError(source, [problem])


def plain_json(text: str) -> str:
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

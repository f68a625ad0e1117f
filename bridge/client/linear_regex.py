"""Run regular expressions from servers in linear time, with the Rust engine that pydantic includes.

The time is proportional to the text length times the states of the expression, so both are limited. Expressions that
the engine does not support (lookarounds, back references) or interprets differently from JavaScript are rejected.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

_MAX_CHARS = 2_000
_MAX_STATES = 2_000
_MAX_WORK = 500_000
"""Maximum states times characters of one match: about 50 ms for the slowest expressions."""
_WORK_A_STEP = 100
_UNICODE_STATES = 50
"""Minimum states of a character class that includes the letters of all languages."""
_MAX_CACHED = 1_024
_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_UNICODE = re.compile(r"\\[wWpP]")
_SET_OPERATION = re.compile(r"&&|--|~~|\[")


class LinearRegex:
    """A regular expression that is searched for in texts of limited length.

    Raises:
        SchemaError: The engine does not support the expression.
    """

    def __init__(self, pattern: str, states: int) -> None:
        self._states = states
        self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))

    @staticmethod
    @lru_cache(_MAX_CACHED)
    def of(pattern: str) -> LinearRegex | None:
        """Compile a pattern (cached); None if it cannot be run in linear time."""
        states = _states(pattern) if len(pattern) <= _MAX_CHARS else None
        if states is None or states > _MAX_STATES:
            return None
        try:
            return LinearRegex(pattern, states)
        except SchemaError:
            return None

    def steps(self, text: str) -> int | None:
        """Maximum steps that a search takes; None if there are too many."""
        work = self._states * len(text)
        return None if work > _MAX_WORK else work // _WORK_A_STEP

    def matches(self, text: str) -> bool:
        """Return True if the expression occurs anywhere in the text."""
        return self._validator.isinstance_python(text)


def _states(pattern: str) -> int | None:
    """Estimate the states of an expression, repetitions expanded; None if engines disagree on its syntax."""
    open_groups, last = [0], 0
    for piece in _PIECE.findall(pattern):
        if piece == "(":
            open_groups.append(0)
        elif piece == ")" and len(open_groups) > 1:
            last = open_groups.pop() + 1
            open_groups[-1] += last
        elif piece[0] == "{" and len(piece) > 1:
            times = max(int(number[:9]) for number in re.findall(r"\d+", piece))
            open_groups[-1] += last * (times - 1)
            last *= times
        else:
            if piece[0] == "[" and _SET_OPERATION.search(re.sub(r"\\.", "", piece[1:])):
                return None
            last = 1 + len(piece) // 8 + _UNICODE_STATES * len(_UNICODE.findall(piece))
            open_groups[-1] += last
    return sum(open_groups)

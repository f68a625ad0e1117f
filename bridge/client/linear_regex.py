"""Regular expressions of servers, run in linear time by Rust's engine, which pydantic brings.

The engine takes time in proportion to the text and to the states of the expression, so both are bounded. What it does
not know (lookarounds, back references), or reads otherwise than JavaScript does, is left out.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic_core import SchemaError, SchemaValidator, core_schema

_MAX_CHARS = 2_000
_MAX_STATES = 2_000
_MAX_WORK = 500_000
"""The most states times characters of one match: some 50 ms where the engine is slowest."""
_WORK_A_STEP = 100
_UNICODE_STATES = 50
"""How many states a class of the letters of all languages has at least."""
_KEPT = 1_024

_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_UNICODE = re.compile(r"\\[wWpP]")
_SET_OPERATION = re.compile(r"&&|--|~~|\[")


class LinearRegex:
    """An expression that can be searched for in texts of a bounded length.

    Args:
        pattern: The expression.
        states: How many states it has, roughly.

    Raises:
        SchemaError: The engine does not take it.
    """

    def __init__(self, pattern: str, states: int) -> None:
        self._states = states
        self._validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))

    @staticmethod
    @lru_cache(_KEPT)
    def of(pattern: str) -> LinearRegex | None:
        """The expression of a schema; None for one that cannot be run in linear time."""
        states = _states(pattern) if len(pattern) <= _MAX_CHARS else None
        if states is None or states > _MAX_STATES:
            return None
        try:
            return LinearRegex(pattern, states)
        except SchemaError:
            return None

    def steps(self, text: str) -> int | None:
        """How many steps a search takes at most; None for too many."""
        work = self._states * len(text)
        return None if work > _MAX_WORK else work // _WORK_A_STEP

    def matches(self, text: str) -> bool:
        """The expression is found somewhere in a text."""
        return self._validator.isinstance_python(text)


def _states(pattern: str) -> int | None:
    """Roughly how many states an expression has, repetitions written out; None where engines differ on it."""
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

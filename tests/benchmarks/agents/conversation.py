"""The conversation of every agent: a script in place of a model, and tools that add two numbers.

It imports the standard library only, so that it runs beside any of the agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ARGUMENTS = {"a": 1, "b": 2}
QUESTION = "What is the sum of 1 and 2?"
ANSWER = "The sum is 3."

ran: list[int] = []
"""Sums found by the tools; they prove that the tools ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Setting of a turn."""

    tools: int
    """Number of tools; the model calls the last one."""
    memory: int
    """Number of earlier messages."""


class Agent(Protocol):
    """An agent, ready for its turns."""

    async def prepared(self, calls: tuple[int, ...]) -> Callable[[], Coroutine[Any, Any, object]]:
        """Prepare one turn.

        Args:
            calls: Tool calls of each response of the model; afterwards it answers.

        Returns:
            A function that takes the turn.
        """
        ...

    def question(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """Return a function that asks only the model, with a request as in the middle of a turn."""
        ...


def adders(count: int) -> list[Callable[[int, int], Coroutine[Any, Any, int]]]:
    """Functions that add two numbers, each with its own name."""
    return [_adder(f"add_{number}") for number in range(count)]


def called(setting: Setting) -> str:
    """The tool that the model calls."""
    return f"add_{setting.tools - 1}"


def _adder(name: str) -> Callable[[int, int], Coroutine[Any, Any, int]]:
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        ran.append(a + b)
        return a + b

    add.__name__ = add.__qualname__ = name
    return add

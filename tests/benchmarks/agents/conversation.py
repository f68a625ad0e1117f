"""The conversation that every agent has: a script in place of a model, and tools that add two numbers.

Nothing here but Python's own, so that it runs beside any of the agents.
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
"""The sums that tools have found, so that nobody can be quick by leaving out the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What surrounds a turn of the conversation."""

    tools: int
    """How many the model is offered; the last is the one that it calls."""
    memory: int
    """How many messages were said before."""


class Agent(Protocol):
    """An agent, ready for its turns."""

    async def prepared(self, calls: tuple[int, ...]) -> Callable[[], Coroutine[Any, Any, object]]:
        """Set the stage for one turn.

        Args:
            calls: How many tools each response of the model wants; after them it answers.

        Returns:
            What takes the turn.
        """
        ...

    def question(self) -> Callable[[], Coroutine[Any, Any, object]]:
        """What asks the model alone, with what it is asked in the middle of a turn."""
        ...


def adders(count: int) -> list[Callable[[int, int], Coroutine[Any, Any, int]]]:
    """Functions that add two numbers, each of its own name."""
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

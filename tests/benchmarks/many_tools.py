"""BENCHMARK_TOOLS tools, each a function of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bridge import ToolBox, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def numbered(number: int) -> Callable[[int, int], Awaitable[int]]:
    @tool(name=f"add_{number}")
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    return add


TOOLS = ToolBox([numbered(number) for number in range(int(os.environ.get("BENCHMARK_TOOLS", "1")))])

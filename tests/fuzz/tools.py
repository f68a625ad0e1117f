"""Tools of the servers that `python -m tests.fuzz` starts."""

from __future__ import annotations

from typing import Any

from bridge import InvocationContext, tool


@tool
async def add(a: int, b: int, context: InvocationContext) -> int:
    """Add two numbers."""
    await context.progress(1, 1)
    return a + b


@tool
async def echo(value: Any) -> Any:
    """Return the argument."""
    return value

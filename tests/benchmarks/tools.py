"""Tools of the benchmarks: one addition, in every way in which a function can be called."""

from __future__ import annotations

from bridge import InvocationContext, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def add_in_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(run_in_thread=False)
def add_in_place(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def add_in_context(a: int, b: int, context: InvocationContext) -> int:
    """Add two numbers; it has a context and does not use it."""
    return a + b


@tool
async def add_and_report(a: int, b: int, context: InvocationContext) -> int:
    """Add two numbers, and report progress, which the caller may have asked for."""
    await context.progress(1, 2)
    return a + b

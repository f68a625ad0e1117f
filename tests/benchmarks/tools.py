"""What the benchmarks serve: one addition, in every way in which a function can be called."""

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
async def add_and_tell(a: int, b: int, context: InvocationContext) -> int:
    """Add two numbers; it could talk back to its caller, so that its calls go through the SDK."""
    return a + b

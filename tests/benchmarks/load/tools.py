"""A tool that waits, and takes no processor time."""

from __future__ import annotations

import anyio

from bridge import tool

TOOL_SECONDS = 0.1


@tool
async def add_slowly(a: int, b: int) -> int:
    """Add two numbers."""
    await anyio.sleep(TOOL_SECONDS)
    return a + b

"""A server of FastMCP with tasks, run over stdio by a Python that has it."""

import asyncio
from datetime import timedelta

from fastmcp import FastMCP  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.utilities.tasks import TaskConfig  # type: ignore[import-not-found]  # likewise
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]  # likewise

SOON = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=20))
mcp = FastMCP("fast")
mcp.add_extension(TasksExtension())


@mcp.tool(task=SOON)  # type: ignore[untyped-decorator]  # it is installed elsewhere
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@mcp.tool(task=SOON)  # type: ignore[untyped-decorator]  # likewise
async def hold() -> str:
    """Run until cancelled."""
    await asyncio.Event().wait()
    return "never"


@mcp.tool(task=SOON)  # type: ignore[untyped-decorator]  # likewise
async def fail() -> str:
    """Fail."""
    raise ValueError("it failed")


@mcp.tool  # type: ignore[untyped-decorator]  # likewise
async def add_directly(a: int, b: int) -> int:
    """Add two numbers, and be no task."""
    return a + b


if __name__ == "__main__":
    mcp.run(show_banner=False)

"""Tools with every kind of argument and result for the frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anyio import Event, sleep_forever
from anyio.lowlevel import checkpoint

from bridge import Image, InvocationContext, P, Text, ToolAnnotations, ToolBox, ToolError, tool
from bridge.tools.content import Audio, Content, File
from tests.models.requests import PDF, PIXEL

PARAMETERS = ("user", "deps", "context")
"""Invocation parameters of the frameworks."""


@dataclass
class Sum:
    total: int


@tool(annotations=ToolAnnotations(read_only=True))
def add(a: int, b: Annotated[int, P(description="The second number")] = 1) -> Sum:
    """Add two numbers."""
    return Sum(a + b)


@tool
def chart(city: str) -> list[Content]:
    """Draw a chart."""
    return [Text(f"A chart of {city}."), Image(PIXEL)]


@tool
def attach() -> list[Content]:
    """Return a file of each kind."""
    return [File("file:///a/report.pdf", PDF, "application/pdf"), Audio(b"RIFF"), File("file:///a.txt", "one", None)]


@tool(annotations=ToolAnnotations(destructive=True))
def delete(path: str) -> str:
    """Delete a file."""
    raise ToolError(f"{path} is locked; close it first")


@tool("Say who calls.", name="who.am.i")
async def who_am_i(context: InvocationContext) -> str:
    known = {name: context.parameters[name] for name in PARAMETERS if name in context.parameters}
    return f"{known} in {context.memory_id}"


@tool
async def count(context: InvocationContext) -> str:
    """Count to two."""
    await context.progress(1, 2, "half")
    await checkpoint()
    await context.progress(2, 2)
    return "counted"


class Waiting:
    """A tool that waits until its call is cancelled."""

    def __init__(self) -> None:
        self.started = Event()
        self.cancelled = Event()

    @tool
    async def wait(self) -> str:
        """Wait for ever."""
        self.started.set()
        try:
            await sleep_forever()
        finally:
            self.cancelled.set()
        return ""


def box() -> ToolBox:
    """All of them."""
    return ToolBox(add, chart, attach, delete, who_am_i, count)

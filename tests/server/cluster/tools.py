"""Tools of the replicas."""

from __future__ import annotations

from contextlib import suppress

import anyio

from bridge import InvocationContext, ToolBox, tool

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def slow_sum(a: int, b: int, context: InvocationContext) -> int:
    """Add, and say how far that is."""
    await context.progress(1, 2)
    return a + b


@tool
async def greet(context: InvocationContext) -> str:
    """Ask for a name, and greet."""
    answer = await context.elicit("Who?", FORM, key="name")
    return f"Hello {(answer.content or {})['name']}"


@tool
async def hold(port: int, context: InvocationContext) -> str:
    """Say that it runs, and answer what it is told; say so too if it is cancelled."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await context.progress(1, 2, "running")
        await stream.send(b"running")
        try:
            told = await stream.receive()
        except anyio.get_cancelled_exc_class():
            with suppress(OSError):
                stream.extra(anyio.abc.SocketAttribute.raw_socket).send(b"cancelled")
            raise
    return told.decode()


@tool
async def speak(context: InvocationContext) -> str:
    """Log at two levels."""
    await context.log("info", "a detail")
    await context.log("error", "a failure")
    return "said"


@tool
async def steered(port: int, context: InvocationContext) -> str:
    """Report at once, then report and close the stream as often as it is told to, until it is done."""
    reports = 1
    await context.progress(reports)
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        while (told := await stream.receive()) != b"done":
            if told == b"report":
                reports += 1
                await context.progress(reports)
            else:
                await context.close_stream()
                await stream.send(b"closed")
    return told.decode()


TOOLS = ToolBox([add, slow_sum, greet, hold, speak, steered])

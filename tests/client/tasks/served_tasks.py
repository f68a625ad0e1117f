"""Tools whose calls are tasks, for a process of its own."""

from __future__ import annotations

import anyio

from bridge import InvocationContext, TaskPolicy, ToolError, tool
from tests.client.served import say

FAST = TaskPolicy(poll_interval_seconds=0.02)
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@tool(task=FAST)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def add_directly(a: int, b: int) -> int:
    """Add two numbers, and be no task."""
    return a + b


async def received(port: int) -> str:
    """Wait for what the test sends."""
    async with await anyio.connect_tcp("127.0.0.1", port) as connection:
        return (await connection.receive()).decode()


@tool(task=FAST)
async def wait_for(port: int, context: InvocationContext) -> str:
    """Report progress, and wait for the test."""
    await context.progress(1, 2, "waiting")
    return await received(port)


@tool(task=FAST)
async def hold(port: int, context: InvocationContext) -> str:
    """Report progress, and run until cancelled."""
    await context.progress(1, 2, "holding")
    say(port, "started")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        say(port, "cancelled")
        raise
    return "never"


@tool(task=FAST, annotations={"idempotentHint": True})
async def wait_again(port: int, context: InvocationContext) -> str:
    """Report progress, and wait for the test, as often as it takes."""
    await context.progress(1, 2, "waiting")
    return await received(port)


@tool(task=TaskPolicy(poll_interval_seconds=60), annotations={"idempotentHint": True})
async def wait_rarely(port: int, context: InvocationContext) -> str:
    """Report progress, and wait for the test; its client polls rarely."""
    await context.progress(1, 2, "waiting")
    return await received(port)


@tool(task=FAST)
async def greet(context: InvocationContext) -> str:
    """Ask for two names, one after another."""
    first = await context.elicit("Your first name?", FORM, key="first")
    last = await context.elicit("Your last name?", FORM, key="last")
    return f"{(first.content or {}).get('name')} {(last.content or {}).get('name')}"


@tool(task=FAST)
async def find(context: InvocationContext) -> int:
    """Ask for the folders of the client."""
    return len(await context.roots())


@tool
async def find_directly(context: InvocationContext) -> int:
    """Ask for the folders of the client, and be no task."""
    return len(await context.roots())


@tool(task="required")
async def add_later(a: int, b: int) -> int:
    """Add two numbers as a task, always."""
    return a + b


@tool(task=FAST)
def fail() -> str:
    """Fail."""
    raise ToolError("it failed")


@tool(task=FAST, propagate=True)
def crash() -> str:
    """Fail unexpectedly."""
    raise RuntimeError("a secret")


TOOLS = [add, add_directly, wait_for, hold, wait_again, wait_rarely, greet, find, find_directly, add_later, fail, crash]

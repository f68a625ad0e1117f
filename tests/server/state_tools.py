"""Tools that use the state of a session; a server over stdio as well."""

from __future__ import annotations

from typing import Any

from bridge import InvocationContext, tool


@tool
async def count(context: InvocationContext) -> dict[str, Any]:
    """Count the calls of the session."""
    number = await context.session.get("count", 0) + 1
    await context.session.set("count", number)
    return {"count": number, "session": context.session_id}


@tool
def count_in_thread(context: InvocationContext) -> int:
    """Count the calls of the session, in a worker thread."""
    number: int = context.blocking.session.get("count", 0) + 1
    context.blocking.session.set("count", number)
    return number


@tool
async def forget(context: InvocationContext) -> Any:
    """Delete the count; return what is left."""
    await context.session.delete("count")
    await context.session.delete("nothing")
    return await context.session.get("count", "none")


@tool
async def fill(keys: int, length: int, context: InvocationContext) -> str:
    """Set values of a length."""
    for number in range(keys):
        await context.session.set(f"key {number}", "x" * length)
    return "filled"


@tool(task=True)
async def count_as_task(context: InvocationContext) -> int:
    """Count the calls of the session, in a task."""
    await context.start_task()
    number: int = await context.session.get("count", 0) + 1
    await context.session.set("count", number)
    return number


TOOLS = [count, count_in_thread, forget, fill, count_as_task]

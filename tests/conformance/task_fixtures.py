"""Tools for the suite's scenarios of tasks, by the names that they require."""

import anyio

from bridge import InvocationContext, TaskPolicy, ToolBox, ToolError, tool
from bridge.tools import Elicitation


def form(**properties: str) -> dict[str, object]:
    """Return a form of required fields, each with its JSON type."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


@tool
def greet(name: str) -> str:
    """Greets, without a task."""
    return f"Hello, {name}!"


@tool(task=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes a while."""
    await anyio.sleep(seconds)
    return f"{label or 'It'} took {seconds:g} seconds."


@tool(task="required")
async def failing_job() -> str:
    """Fails after a while."""
    await anyio.sleep(0.1)
    raise ToolError("This job always fails.")


@tool(task=True)
async def protocol_error_job(context: InvocationContext) -> str:
    """Asks for what the suite's client cannot give, which is an error of the protocol."""
    return f"There are {len(await context.roots())} roots."


@tool(task=True)
async def confirm_delete(filename: str, context: InvocationContext) -> str:
    """Asks before it deletes."""
    answer = await context.elicit(f"Delete {filename}?", form(confirm="boolean"))
    return f"Deleted {filename}." if answer.accepted else f"Kept {filename}."


@tool(task=True)
async def multi_input(context: InvocationContext) -> str:
    """Asks two questions at once."""
    await context.ask(
        {
            "name": Elicitation("What is your name?", form(name="string")),
            "confirm": Elicitation("Are you sure?", form(confirm="boolean")),
        }
    )
    return "Both questions were answered."


@tool(task=TaskPolicy(required=True, starts_at_once=False))
async def test_tool_with_task(context: InvocationContext) -> str:
    """Asks in the request, and goes on as a task."""
    answer = await context.elicit("What is your name?", form(name="string"), key="user_name")
    await context.start_task()
    return f"Hello, {(answer.content or {}).get('name')}!"


TASK_TOOLS = ToolBox(
    greet, slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input, test_tool_with_task
)

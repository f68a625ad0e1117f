"""A tool that talks while it works: it reports progress, asks the person, and stops when it is cancelled.

bridge serve examples/interactive.py       # for a client that can show progress and forms
python examples/interactive.py             # drives it with the official SDK's client, which is such a client
"""

import sys
from dataclasses import dataclass

import anyio
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult

from bridge import InvocationContext, ToolError, tool

DUSTY_ROOMS = ["kitchen", "hall", "study"]
cleaned: list[str] = []
stopped = anyio.Event()


# A parameter annotated with InvocationContext receives the context of the call, and is hidden from the model.
@tool
async def clean(context: InvocationContext) -> str:
    """Cleans all rooms, one after the other."""
    for number, room in enumerate(DUSTY_ROOMS, 1):
        await context.progress(number, len(DUSTY_ROOMS), f"cleaning the {room}")
        cleaned.append(room)
    return f"Cleaned {', '.join(cleaned)}."


# A form to ask for: a dataclass, a pydantic model or a JSON Schema, of simple fields only.
@dataclass
class Permission:
    """Question for the user."""

    room: str
    """Which room to paint."""
    colour: str = "white"


@tool
async def paint(context: InvocationContext) -> str:
    """Paints a room in a colour of the person's choice."""
    # Ask first, act afterwards: with a client of the newest protocol revision, the function is run again from its
    # start when the answer has come, and then this line returns at once.
    answer = await context.elicit("Which room shall I paint?", Permission, key="permission")
    if answer.data is None:
        raise ToolError("the person does not want anything painted; do not ask again")
    return f"Painted the {answer.data.room} {answer.data.colour}."


# A coroutine function is cancelled where it waits. Python's own try … finally is where to clean up.
@tool
async def guard(context: InvocationContext) -> None:
    """Guards the house until the call is cancelled."""
    try:
        await context.progress(0, message="on guard")
        await anyio.sleep_forever()
    finally:
        stopped.set()


@tool
async def relieve() -> str:
    """Waits until the guard has gone."""
    await stopped.wait()
    return "The guard has gone."


async def main() -> None:
    """Be the client: show progress, answer the question, cancel a call."""

    async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        print(f"the server asks ({context.request_id}): {params.message}")
        return ElicitResult(action="accept", content={"room": "hall", "colour": "blue"})

    this_server = StdioServerParameters(command=sys.executable, args=["-m", "bridge", "serve", __file__])
    async with Client(this_server, elicitation_callback=fill_in) as client:
        all_shown = anyio.Event()

        async def show(progress: float, total: float | None, message: str | None) -> None:
            print(f"progress: {progress:g} of {total or 0:g}, {message}")
            if progress == total:
                all_shown.set()

        result = await client.call_tool("clean", progress_callback=show)
        await all_shown.wait()
        print(result.content[0].model_dump()["text"])
        assert result.content[0].model_dump()["text"] == "Cleaned kitchen, hall, study."

        result = await client.call_tool("paint")
        print(result.content[0].model_dump()["text"])
        assert result.content[0].model_dump()["text"] == "Painted the hall blue."

        on_guard = anyio.Event()

        async def begun(progress: float, total: float | None, message: str | None) -> None:
            print(f"progress: {progress:g} of {total or 'no end'}, {message}")
            on_guard.set()

        async with anyio.create_task_group() as calls:
            calls.start_soon(lambda: client.call_tool("guard", progress_callback=begun))
            await on_guard.wait()
            calls.cancel_scope.cancel()  # the client leaves, and tells the server so
        result = await client.call_tool("relieve")
        print(result.content[0].model_dump()["text"])
        assert result.content[0].model_dump()["text"] == "The guard has gone."


if __name__ == "__main__":
    anyio.run(main)

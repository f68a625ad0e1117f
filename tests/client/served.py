"""Tools for the tests of connections, served by a process of its own; they report to the test."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Annotated

import anyio
from pydantic import Field

from bridge import InvocationContext, ToolBox, tool
from bridge.tools.specification import ToolAnnotations


def say(port: int, word: str) -> None:
    """Tell the test."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(word.encode())


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def located(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """An argument that travels in a header too."""
    return region


@tool
async def declared(context: InvocationContext) -> list[str]:
    """Tell the version and the capabilities of the client."""
    return [context.protocol_version, *sorted(context.client_capabilities)]


@tool
async def pid() -> int:
    """Tell which process this is."""
    return os.getpid()


@tool
async def variables() -> list[str]:
    """Tell the names of the variables of the environment."""
    return sorted(os.environ)


@tool
async def hold(port: int) -> str:
    """Run until cancelled."""
    say(port, "started")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        say(port, "cancelled")
        raise
    return "never"


@tool(annotations=ToolAnnotations(idempotent=True))
async def hold_the_first_time(port: int, marker: str) -> str:
    """Run for ever the first time, and at once afterwards."""
    say(port, "started")
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "again"
    await anyio.sleep_forever()
    return "never"


@tool
async def run(port: int) -> str:
    """Run, and say so."""
    say(port, "ran")
    return "done"


@tool
async def end_the_server(port: int) -> str:
    """Kill this process in the middle of the call."""
    say(port, "started")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool
async def steps(to: int, context: InvocationContext) -> None:
    """Report progress."""
    for step in range(1, to + 1):
        await context.progress(step, to)


@tool
async def progress_and_hold(context: InvocationContext, port: int) -> str:
    """Report progress once, then run until cancelled."""
    await context.progress(1, 2, "half")
    return await hold(port)


async def ask_for_a_dish(context: InvocationContext) -> str:
    """Ask the person."""
    form = {"type": "object", "properties": {"dish": {"type": "string"}}}
    answer = await context.elicit("What would you like?", form, key="dish")
    return str(answer.content and answer.content["dish"])


@tool
async def order(context: InvocationContext) -> str:
    """Ask the person."""
    return await ask_for_a_dish(context)


BOTH_ARE_HERE = anyio.Event()
HERE: list[InvocationContext] = []


@tool
async def order_together(context: InvocationContext) -> str:
    """Ask the person, once two calls are under way, and go on when both have been answered."""
    HERE.append(context)
    if len(HERE) == 2:
        BOTH_ARE_HERE.set()
    await BOTH_ARE_HERE.wait()
    dish = await ask_for_a_dish(context)
    HERE.append(context)
    if len(HERE) == 4:
        BOTH_ARE_ANSWERED.set()
    await BOTH_ARE_ANSWERED.wait()
    return dish


BOTH_ARE_ANSWERED = anyio.Event()

STUBBORN = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"grandchild ended")  # the word is heard when the connection ends
print("ready", flush=True)
signal.pause()
"""


@tool
async def start_a_child(port: int) -> int:
    """Start a process that ignores everything but being killed, and keeps the pipes of this one; returns its id."""
    child = subprocess.Popen([sys.executable, "-c", STUBBORN, str(port)], stdout=subprocess.PIPE)  # noqa: ASYNC220 - short
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child.pid


@tool
async def change_the_list() -> bool:
    """Offer one more tool, or one fewer."""
    if "run" in TOOLS:
        TOOLS.remove("run")
    else:
        TOOLS.add(run)
    return "run" in TOOLS


TOOLS = ToolBox(
    declared, [add, pid, variables, hold, hold_the_first_time, run, end_the_server, progress_and_hold, steps]
)
TOOLS.add(start_a_child, change_the_list, order, order_together, located)

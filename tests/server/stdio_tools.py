"""A server over stdio with tools that misbehave: ``python tests/server/stdio_tools.py [setting…]``."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from bridge.server.stdio import process

streams = process.take_standard_streams()
print("printed while the tools are imported")  # noqa: T201 - what is tested

from bridge.server.server import Server  # noqa: E402 - nothing is imported before the diversion
from bridge.server.stdio.server import MAX_LINE_BYTES, serve_stdio  # noqa: E402
from bridge.tools.context import InvocationContext  # noqa: E402, TC001 - read when the tools are made
from bridge.tools.function import tool  # noqa: E402
from bridge.tools.toolbox import ToolBox  # noqa: E402


@tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool
async def echo(value: Any) -> Any:
    """Return what came."""
    return value


@tool
def print_everywhere() -> str:
    """Write to standard output in every way there is."""
    print("printed by Python")  # noqa: T201 - what is tested
    os.write(1, b"written to the descriptor\n")
    subprocess.run(["echo", "echoed by a child"], check=True)
    return "done"


@tool
def read_everywhere() -> list[str]:
    """Read standard input in every way there is."""
    child = subprocess.run(["cat"], check=True, capture_output=True, text=True)
    return [child.stdout, sys.stdin.read(), os.read(0, 10).decode()]


@tool
async def interrupt() -> None:
    """Raise what Ctrl+C raises."""
    raise KeyboardInterrupt


@tool
def interrupt_in_a_thread() -> None:
    """Raise what Ctrl+C raises."""
    raise KeyboardInterrupt


@tool(run_in_thread=False)
def interrupt_in_place() -> None:
    """Raise what Ctrl+C raises."""
    raise KeyboardInterrupt


@tool
def fork_a_child() -> int:
    """Fork a child that outlives the server; it ends when its parent's end of a pipe is closed in all processes."""
    child = os.fork()
    if child == 0:
        os.write(streams.output_fd, b"garbage from the child\n")
        threading.Event().wait()
    return child


@tool
def text_of_length(length: int) -> str:
    """A long text."""
    return "x" * length


@tool
async def wait_forever(marker: str, context: InvocationContext) -> None:
    """Say that it runs, wait, and take some time to clean up and to write a file when it is cancelled."""
    import anyio  # noqa: PLC0415

    await context.progress(1)
    try:
        await _never()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.run_process(["true"])
            await anyio.Path(marker).write_text("cleaned up", encoding="utf-8")


@tool
def wait_forever_in_a_thread(context: InvocationContext) -> None:
    """Say that it runs, and never return."""
    context.blocking.progress(1)
    threading.Event().wait()


@tool
async def block_the_loop(context: InvocationContext) -> None:
    """Say that it runs, and never let anything else run."""
    await context.progress(1)
    threading.Event().wait()


@tool
async def compute_in_native_code(context: InvocationContext) -> None:
    """Say that it runs, and never come back from native code, where Python's signal handlers cannot run."""
    await context.progress(1)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


@tool
async def wait_plainly() -> None:
    """Wait for ever, with nothing to say meanwhile."""
    await _never()


@tool
def wait_plainly_in_a_thread() -> None:
    """Wait for ever, with nothing to say meanwhile, where nothing can stop it."""
    threading.Event().wait()


@tool
async def signal_itself() -> int:
    """Handle a signal as a program may that logs more or reads its settings again then; how often it came."""
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    return len(came)


@tool
async def refuse_to_be_cancelled(context: InvocationContext) -> None:
    """Say that it runs, and go on whatever happens."""
    import anyio  # noqa: PLC0415

    with anyio.CancelScope(shield=True):
        await context.progress(1)
        await _never()


@tool
async def report_forever(context: InvocationContext) -> None:
    """Report progress, and do nothing else, ever."""
    done = 0
    while True:
        done += 1
        await context.progress(done)


@tool
async def count(to: int, context: InvocationContext) -> str:
    """Report progress a number of times."""
    for number in range(1, to + 1):
        await context.progress(number, to)
    return "counted"


@tool
async def ask_for_a_name(context: InvocationContext) -> str:
    """Ask for a name."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await context.elicit("Who are you?", schema, key="name")
    return f"{answer.action} {(answer.content or {}).get('name')}"


@tool
async def end_as_a_generator() -> None:
    """Raise what ends generators, which no ``except Exception`` catches."""
    raise GeneratorExit


_clients: list[object] = []


@tool
async def count_clients(context: InvocationContext) -> int:
    """Return how many clients have called this, as far as a tool can tell."""
    if not any(each is context.peer for each in _clients):
        _clients.append(context.peer)
    return len(_clients)


async def _never() -> None:
    import anyio  # noqa: PLC0415

    await anyio.sleep_forever()


def main(*settings: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    if "no-pidfd" in settings:
        del os.pidfd_open
    if "impatient" in settings:
        process.CLOSED_INPUT_SECONDS = 3.0
    tools = _tools()
    if "unlistable" in settings:
        metadata: dict[str, Any] = {}
        tools.add(tool(name="changed", metadata=metadata | {"k": metadata})(lambda: None))
        metadata["later"] = object()
    max_line_bytes = 1000 if "short-lines" in settings else MAX_LINE_BYTES
    server = Server(tools, name="misbehaving")
    serve_stdio(server, streams, max_line_bytes=max_line_bytes)


def _tools() -> ToolBox:
    return ToolBox(
        add,
        count_clients,
        echo,
        print_everywhere,
        read_everywhere,
        fork_a_child,
        interrupt,
        interrupt_in_a_thread,
        interrupt_in_place,
        text_of_length,
        wait_forever,
        wait_forever_in_a_thread,
        block_the_loop,
        compute_in_native_code,
        wait_plainly,
        wait_plainly_in_a_thread,
        signal_itself,
        refuse_to_be_cancelled,
        report_forever,
        count,
        ask_for_a_name,
        end_as_a_generator,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

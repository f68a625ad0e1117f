"""The main job, shown: serve `servers/calculator.py`, and use it from another process, over HTTP and over stdio.

Each step prints the command that you would type. The answers are checked against Python's own. Run by `make demo`.
"""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from mcp import Client, StdioServerParameters

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).resolve().parent.parent
BRIDGE = [sys.executable, "-m", "bridge"]
CALCULATOR = "servers/calculator.py"
NUMBER = 475695037565
DEADLINE_SECONDS = 30


def main() -> None:
    """Run every step; stop at the first that is not what it should be."""
    step("Serve decorated Python functions over HTTP, on a free port")
    with served_over_http() as url:
        step("See what the server offers")
        run("list", url)
        step("Call a tool from the command line")
        check(run("call", url, "square_root", f"x={NUMBER}"))
        step("Call it with the official MCP SDK's client, in both eras of the protocol")
        for era in ("legacy", "2026-07-28"):
            check(anyio.run(call_with_official_client, url, era))
    step("The same file over stdio, as an assistant on the desktop starts it")
    over_stdio = StdioServerParameters(command=sys.executable, args=["-m", "bridge", "serve", CALCULATOR], cwd=HOME)
    show("serve", CALCULATOR)
    for era in ("legacy", "2026-07-28"):
        check(anyio.run(call_with_official_client, over_stdio, era))
    step("And from the command line, without a server")
    check(run("call", CALCULATOR, "square_root", f"x={NUMBER}"))
    print("\nAll of it agrees with math.sqrt. Next: README.md, or `.venv/bin/bridge --help`.")


@contextmanager
def served_over_http() -> Iterator[str]:
    """Serve the calculator in a process of its own; yields the URL that it prints when it listens."""
    arguments = ("serve", CALCULATOR, "--transport", "http", "--port", "0")
    show(*arguments)
    server = subprocess.Popen([*BRIDGE, *arguments], cwd=HOME, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            print(f"  {line.rstrip()}")
            if found := re.search(r"serving \S+ at (\S+)", line):
                yield found[1]
                return
        raise SystemExit(f"the server ended with exit code {server.wait()}")
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE_SECONDS)


async def call_with_official_client(server: str | StdioServerParameters, era: str) -> str:
    """List and call with a client that this project did not write."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(server, mode=era) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool("square_root", {"x": NUMBER})
            print(f"  {client.protocol_version}: {len(tools)} tools ({', '.join(tools)})")
            answer = result.content[0]
            assert answer.type == "text"
            print(f"  square_root({NUMBER}) = {answer.text}")
            return answer.text


def run(*arguments: str) -> str:
    """Run one bridge command as a user does; returns what it printed."""
    show(*arguments)
    done = subprocess.run(
        [*BRIDGE, *arguments], cwd=HOME, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    print("".join(f"  {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="")
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def check(printed: str) -> None:
    """Hold an answer against Python's own."""
    if float(printed) != math.sqrt(NUMBER):
        raise SystemExit(f"expected {math.sqrt(NUMBER)!r}, got {printed!r}")


def step(what: str) -> None:
    """Head one step."""
    print(f"\n# {what}")


def show(*arguments: str) -> None:
    """Show a command as the user would type it."""
    print(f"$ bridge {shlex.join(arguments)}")


if __name__ == "__main__":
    main()

"""Progress is shown on a terminal only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests import forks

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

STEPS = """
    import logging
    import sys
    import anyio
    from bridge import InvocationContext, tool

    @tool
    async def steps(context: InvocationContext) -> str:
        '''Report progress.'''
        await context.progress(1, 4, "first\\x1b[2Jstep")
        await context.progress(3, 4)
        return "done"

    @tool
    async def open_end(context: InvocationContext) -> str:
        '''Report progress without an end.'''
        await context.progress(10)
        await context.progress(20, None, "reading")
        return "done"

    @tool
    async def chatty(context: InvocationContext) -> str:
        '''Report progress, and write.'''
        await context.progress(1, 4, "first")
        await context.log("warning", "logged")
        print("printed")
        sys.stderr.write("half a line")
        await context.progress(2, 4, "second")
        await anyio.to_thread.run_sync(logging.getLogger("thread").error, "of a thread")
        await context.progress(3, 4, "last")
        return "done"
"""


@pytest.fixture
def server(directory: Path) -> list[str]:
    (directory / "steps.py").write_text(dedent(STEPS))
    return forks.command("-m", "bridge", "serve", "steps.py")


def on_a_terminal(directory: Path, environment: dict[str, str], *arguments: str, **settings: str) -> tuple[str, str]:
    """Run a command with standard error on a terminal; returns standard output and the terminal's text."""
    terminal, end = os.openpty()
    env = environment | {"TERM": "xterm", "COLUMNS": "80"} | settings
    streams = (subprocess.DEVNULL, None, end)
    with forks.popen(["-m", "bridge", *arguments], cwd=directory, env=env, streams=streams) as process:
        os.close(end)
        assert process.stdout is not None
        output = process.stdout.read()
    shown = b""
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:  # EIO on Linux: the other end is closed
        pass
    finally:
        os.close(terminal)
    return output, shown.decode()


def test_a_bar_shows_how_far_the_call_is(directory: Path, environment: dict[str, str], server: list[str]) -> None:
    output, shown = on_a_terminal(directory, environment, "call", "steps", "--", *server)
    assert output == "done\n"
    assert re.findall(r"\d+%", shown)[-1] == "75%"
    assert r"first\x1b[2Jstep" in shown  # control sequences of a server are escaped


def test_without_an_end_a_spinner_says_how_much_is_done(
    directory: Path, environment: dict[str, str], server: list[str]
) -> None:
    output, shown = on_a_terminal(directory, environment, "call", "open_end", "--", *server)
    assert output == "done\n"
    assert re.search(r"[\u2800-\u28ff]\S* +reading +20", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown))


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(
    directory: Path, environment: dict[str, str], server: list[str]
) -> None:
    output, shown = on_a_terminal(directory, environment, "call", "open_end", "--", *server, TERM="dumb")
    assert output == "done\n"
    assert shown.splitlines() == ["done so far: 10", "reading: 20"]


def screen(shown: str) -> list[str]:
    """Return the lines that a terminal shows at the end."""
    lines, row, column = [""], 0, 0
    for text, count, command in re.findall(r"([^\x1b])|\x1b\[[?]?(\d*)[\d;]*([a-zA-Z])", shown):
        match text or command:
            case "\r":
                column = 0
            case "\n":
                row += 1
                lines += [""] * (row == len(lines))
            case "A" if command:
                row -= int(count or 1)
            case "K" if command:
                lines[row] = "" if count == "2" else lines[row][:column]
            case character if text:
                lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
                column += 1
            case _:
                pass  # a colour, or whether the cursor is shown
    return [line.rstrip() for line in lines if line.strip()]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_no_other_output_shares_a_line_with_the_progress(
    directory: Path, environment: dict[str, str], server: list[str], term: str
) -> None:
    assert server
    output, shown = on_a_terminal(directory, environment, "call", "steps.py", "chatty", TERM=term)
    assert output == "done\n"
    lines = screen(shown)
    others = [line for line in lines if "%" not in line]
    assert others == ["WARNING bridge.tools: logged", "printed", "half a line", "ERROR thread: of a thread"]
    bars = [re.sub(r"\W*(\w+)\W.*", r"\1", line) for line in lines if "%" in line]
    assert bars == ([] if term == "xterm" else ["first", "second", "last"])  # the progress bar of rich is erased
    assert re.findall(r"\d+%", shown)[-1] == "75%"


def test_a_log_line_of_a_server_has_a_line_of_its_own(
    directory: Path, environment: dict[str, str], server: list[str]
) -> None:
    _, shown = on_a_terminal(directory, environment, "call", "chatty", "--log-level", "debug", "--", *server)
    (printed,) = [line for line in screen(shown) if "printed" in line]
    assert re.fullmatch(r"DEBUG bridge\.client: server 'python[\d.]*': printed", printed)


@pytest.mark.parametrize(("settings", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["", "NO_COLOR"])
def test_progress_is_coloured_unless_the_environment_forbids_it(
    directory: Path, environment: dict[str, str], server: list[str], settings: dict[str, str], is_coloured: bool
) -> None:
    _, shown = on_a_terminal(directory, environment, "call", "steps", "--", *server, **settings)
    assert bool(re.search(r"\x1b\[[\d;]*3\d", shown)) is is_coloured


def test_where_nobody_watches_nothing_is_shown(run: Run, server: list[str]) -> None:
    done = run("call", "steps", "--", *server)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")

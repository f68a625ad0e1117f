from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Process, Run, Start

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sockets are handed down on POSIX")

TOOL = "from bridge import tool\n@tool\ndef {name}() -> str: ...\n"


def names(run: Run, url: str) -> list[str]:
    return [tool["name"] for tool in json.loads(run("list", url, "--json").stdout)["tools"]]


def serves(run: Run, url: str, name: str) -> bool:
    """Return True once the tool of this name is the only one; the previous process may take some more connections."""
    return any(names(run, url) == [name] for _ in range(20))


def save_until_seen(process: Process, file: Path, text: str, line: str) -> None:
    """Save a file, and wait until the server has started again with it."""
    file.write_text(text)
    process.line_with("restarting")
    process.line_with(line)


@pytest.mark.slow
def test_a_change_is_served_at_the_same_url_and_a_mistake_leaves_what_was_served(
    run: Run, start: Start, directory: Path
) -> None:
    folder = directory / "folder"
    folder.mkdir()
    file = folder / "tools.py"
    file.write_text(TOOL.format(name="first"))
    with start("serve", "folder/tools.py", "--transport", "http", "--port", "0", "--reload") as process:
        url = process.url()
        assert names(run, url) == ["first"]
        save_until_seen(process, file, TOOL.format(name="second"), f"serving tools at {url}")
        assert serves(run, url, "second")
        for mistake, said in (("1 / 0\n", "ZeroDivisionError: division by zero"), ("def\n", "SyntaxError: invalid")):
            save_until_seen(process, file, mistake, said)
            process.line_with("the changed files cannot be served")
            assert serves(run, url, "second")
        save_until_seen(process, file, TOOL.format(name="third"), f"serving tools at {url}")
        assert serves(run, url, "third")
        assert process.end(signal.SIGTERM) == 0
        assert "bridge: " not in run("list", "calculator.py").stderr


@pytest.mark.slow
def test_files_that_take_for_ever_to_load_are_replaced_by_the_next_change(
    run: Run, start: Start, directory: Path
) -> None:
    folder = directory / "folder"
    folder.mkdir()
    file = folder / "tools.py"
    file.write_text(TOOL.format(name="first"))
    arguments = ("serve", "folder/tools.py", "--transport", "http", "--port", "0", "--reload", "--admin-port", "0")
    with start(*arguments) as process:
        url = process.url()
        endless = "import sys, threading\nprint('loads', file=sys.stderr)\nthreading.Event().wait()\n"
        save_until_seen(process, file, endless, "loads")
        assert names(run, url) == ["first"]
        save_until_seen(process, file, TOOL.format(name="second"), f"serving tools at {url}")
        assert serves(run, url, "second")
        assert process.end(signal.SIGTERM) == 0


def test_a_module_of_a_package_is_watched_with_the_package(run: Run, start: Start, directory: Path) -> None:
    package = directory / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'one'\n")
    (package / "tools.py").write_text(
        "from bridge import tool\nfrom .names import NAME\n@tool(name=NAME)\ndef f() -> str: ...\n"
    )
    environment = {"BRIDGE_RELOAD": "1", "BRIDGE_TRANSPORT": "http", "BRIDGE_PORT": "0"}
    with start("serve", "package.tools", env=environment) as process:
        url = process.url()
        save_until_seen(process, package / "names.py", "NAME = 'another'\n", f"serving tools at {url}")
        assert serves(run, url, "another")
        assert process.end(signal.SIGINT) == 130
        assert not [line for line in process.seen if "Traceback" in line]


def test_without_the_extra_the_remedy_is_named(run: Run, directory: Path) -> None:
    (directory / "lacking").mkdir()
    (directory / "lacking" / "watchfiles.py").write_text("raise ModuleNotFoundError('as if it were not installed')\n")
    done = run(
        "serve", "calculator.py", "--transport", "http", "--port", "0", "--reload", env={"PYTHONPATH": "lacking"}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bridge: --reload needs the package 'watchfiles': pip install 'mcp-toolbridge[reload]'\n"


def test_a_module_that_is_not_there_is_told_at_once(run: Run) -> None:
    done = run("serve", "nowhere.tools", "--transport", "http", "--port", "0", "--reload")
    assert (done.returncode, done.stderr) == (2, "bridge: there is no module 'nowhere'\n")


@pytest.mark.parametrize("option", [("--rate", "x"), ("--tool-rate", "add=often"), ("--state-keys", "short")])
def test_an_option_that_cannot_be_used_ends_it_at_once(run: Run, option: tuple[str, str]) -> None:
    done = run("serve", "calculator.py", "--transport", "http", "--port", "0", "--reload", *option)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("bridge serve: ")

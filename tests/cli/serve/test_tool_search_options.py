"""``--tools`` of ``bridge serve``, with real servers behind a gateway."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from tests import forks
from tests.server.tasks.client import TaskClient

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

BOOKS = '''
    from bridge import tool


    @tool
    def delete_invoice(number: int) -> int:
        """Delete an invoice."""
        return number


    @tool(always_visible=True)
    def help_me() -> str:
        """Help."""
        return "help"
'''
LOCAL = '''
    from bridge import tool


    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b
'''
OWN = ["search_tools", "call_tool"]


@pytest.fixture
def servers(directory: Path) -> Path:
    """Write two servers, and a configuration of one; return its path."""
    (directory / "books.py").write_text(dedent(BOOKS), encoding="utf-8")
    (directory / "local.py").write_text(dedent(LOCAL), encoding="utf-8")
    return configured(directory)


def configured(directory: Path, **root: Any) -> Path:
    command, *args = forks.command("-m", "bridge", "serve", "books.py")
    entry = {"command": command, "args": args, "cwd": str(directory), "alwaysVisible": ["nosuch", "help_*"]}
    path = directory / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"books": entry}} | root), encoding="utf-8")
    return path


def listed(process: Any) -> tuple[list[str], TaskClient]:
    client = TaskClient(process.url().removesuffix("/mcp"), capabilities={})
    return [each["name"] for each in client.send("tools/list", {})["tools"]], client


def serve(*options: str) -> tuple[str, ...]:
    return ("serve", "mcp.json", "local.py", "--transport", "http", "--port", "0", *options)


@pytest.mark.usefixtures("servers")
def test_tools_of_other_servers_and_local_ones_are_found_and_called(start: Start) -> None:
    with start(*serve("--tools", "search")) as process:
        names, client = listed(process)
        with client:
            assert names == [*OWN, "help_me"]
            answer = client.call("search_tools", query="get rid of invoices", detail="name")
            assert json.loads(answer["content"][0]["text"])[0] == {"name": "delete_invoice"}
            for name, arguments, text in (("delete_invoice", {"number": 5}, "5"), ("add", {"a": 1, "b": 2}, "3")):
                params = {"name": "call_tool", "arguments": {"name": name, "arguments": arguments}}
                assert client.send("tools/call", params)["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("options", "root", "names"),
    [
        ((), {}, ["add", "delete_invoice", "help_me"]),
        ((), {"tools": "search"}, [*OWN, "help_me"]),
        (("--tools", "all"), {"tools": "search"}, ["add", "delete_invoice", "help_me"]),
        (("--tools", "auto", "--max-listed-tokens", "50"), {}, [*OWN, "help_me"]),
        (("--tools", "search", "--always-list", "a*,zzz"), {}, [*OWN, "add", "help_me"]),
    ],
)
@pytest.mark.usefixtures("servers")
def test_options_and_the_configuration_say_what_is_listed(
    start: Start, directory: Path, options: tuple[str, ...], root: dict[str, Any], names: list[str]
) -> None:
    configured(directory, **root)
    with start(*serve(*options)) as process:
        found, client = listed(process)
        client.__exit__()
        assert found == names


@pytest.mark.usefixtures("servers")
def test_other_listings_are_refused(run: Run) -> None:
    result = run(*serve("--tools", "some"))
    assert result.returncode == 2
    assert "'some' is not one of" in result.stderr


@pytest.mark.parametrize(("options", "root"), [(("--tools", "code"), {}), ((), {"tools": "code"})])
@pytest.mark.usefixtures("servers")
def test_scripts_call_tools_of_other_servers_and_local_ones(
    start: Start, directory: Path, options: tuple[str, ...], root: dict[str, Any]
) -> None:
    configured(directory, **root)
    with start(*serve(*options, "--code-calls", "2")) as process:
        names, client = listed(process)
        with client:
            assert names == ["search_tools", "run_code", "help_me"]
            answer = client.call("run_code", code="await delete_invoice(await add(1, 2))")
            assert answer["content"][0]["text"] == "3"
            failed = client.call("run_code", code="[await add(n, n) for n in range(3)]")
            assert "a script may make 2 calls" in failed["content"][0]["text"]


@pytest.mark.parametrize(
    ("mode", "hint"),
    [("search", "call_tool name=add arguments='{…}'"), ("code", "run_code code='…'")],
)
@pytest.mark.usefixtures("servers")
def test_calling_a_tool_that_is_not_listed_gets_a_hint(start: Start, run: Run, mode: str, hint: str) -> None:
    with start(*serve("--tools", mode)) as process:
        result = run("call", process.url(), "add", "a=1", "b=2")
    assert result.returncode != 0
    assert "there is no tool named 'add'" in result.stderr
    assert hint in result.stderr

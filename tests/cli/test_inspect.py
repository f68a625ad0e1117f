from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests import forks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run, Start

DEADLINE_SECONDS = 30


@contextmanager
def opened(url: str) -> Iterator[httpx.Client]:
    """A client that has opened the page."""
    parts = urlsplit(url)
    with httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}{parts.path}", timeout=DEADLINE_SECONDS) as client:
        assert client.get(f"/?{parts.query}").status_code == 303
        yield client


def servers(client: httpx.Client, *ready: str) -> dict[str, Any]:
    """Return the servers by name, after the tools of the given ones are listed."""
    found: dict[str, Any] = {}
    kind = ""
    with client.stream("GET", "/events") as response:
        for line in response.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind in {"state", "server"}:
                data = json.loads(line.removeprefix("data: "))
                found |= {each["name"]: each for each in (data["servers"] if kind == "state" else [data])}
                if all(found[name]["tools"] for name in ready):
                    break
    return found


def test_the_page_of_a_python_file_is_served_at_the_printed_address(start: Start) -> None:
    with start("inspect", "calculator.py", "--no-browser") as process:
        url = process.url()
        with opened(url) as client:
            calculator = servers(client, "calculator")["calculator"]
            call = {"name": "add", "arguments": {"a": 1}}
            body = {"server": "calculator", "method": "tools/call", "params": call}
            assert client.post("/requests", json=body).status_code == 200
        assert [tool["name"] for tool in calculator["tools"]] == ["add", "shout", "divide", "crash"]
        assert calculator["transport"] == "stdio"
        assert process.end(signal.SIGTERM) == 0
    assert urlsplit(url).hostname == "127.0.0.1"
    token = urlsplit(url).query.removeprefix("token=")
    assert len(token) >= 40
    assert sum(token in line for line in process.seen) == 1


def test_an_address_that_was_used_has_a_new_one_printed(start: Start) -> None:
    with start("inspect", "calculator.py", "--no-browser") as process:
        url = process.url()
        with opened(url):
            pass
        assert httpx.get(url).status_code == 403
        renewed = process.url()
        assert renewed != url
        with opened(renewed) as client:
            assert client.get("/").status_code == 200


def test_ctrl_c_ends_the_page_while_it_is_open(start: Start) -> None:
    with (
        start("inspect", "calculator.py", "--no-browser") as process,
        opened(process.url()) as client,
        client.stream("GET", "/events") as events,
    ):
        assert next(events.iter_lines()) == "event: state"
        assert process.end(signal.SIGINT) == 130
        assert [line for line in process.seen if "Traceback" in line] == []


def test_several_targets_are_servers_under_their_own_names(start: Start, directory: Path) -> None:
    command = forks.command("-m", "bridge", "serve", "calculator.py")
    entry = {"command": command[0], "args": command[1:], "prefix": "old_", "protocol": "legacy"}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"calculator": entry, "off": {"disabled": True}}}))
    with (
        start("inspect", "calculator.py", "mcp.json", "--no-browser", "--timeout", "20", "--", *command) as process,
        opened(process.url()) as client,
    ):
        found = servers(client, "calculator", "mcp-calculator", "python")
        assert {name: server["era"] for name, server in found.items()} == {
            "calculator": "modern",
            "mcp-calculator": "handshake",
            "python": "modern",
            "off": None,
        }
        for name, expected in {
            "calculator": f"bridge call {directory}/calculator.py add a=1",
            "mcp-calculator": f"bridge call '{directory}/mcp.json#calculator' old_add a=1",
            "python": f"bridge call add a=1 -- {' '.join(command)}",
        }.items():
            call = {"name": "add", "arguments": {"a": 1}}
            sent = client.post("/requests", json={"server": name, "method": "tools/call", "params": call}).json()
            assert client.get(f"/requests/{sent['number']}/snippets").json()["line"] == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "a TARGET is missing"),
        (["none.py"], "there is no file 'none.py'"),
        (["calculator.py", "--port", "70000"], "70000"),
        (["calculator.py", "--base-url", "http://x"], "--base-url needs --model"),
        (["calculator.py", "--header", "A: b"], "--header needs one http(s):// URL"),
    ],
)
def test_wrong_usage_is_code_2(run: Run, arguments: list[str], problem: str) -> None:
    done = run("inspect", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_a_configuration_without_servers_is_refused(run: Run, directory: Path) -> None:
    (directory / "mcp.json").write_text('{"mcpServers": {}}')
    done = run("inspect", "mcp.json", "--no-browser")
    assert done.returncode == 2
    assert "there are no servers" in done.stderr


def test_a_port_that_is_taken_is_an_error(run: Run, start: Start) -> None:
    with start("inspect", "calculator.py", "--no-browser") as process:
        port = urlsplit(process.url()).port
        done = run("inspect", "calculator.py", "--no-browser", "--port", str(port))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
def test_the_browser_is_opened_by_a_private_file_that_is_removed(
    start: Start, directory: Path, ending: signal.Signals, code: int
) -> None:
    note = directory / "browser.sh"
    note.write_text(f'#!/bin/sh\necho "$1" > {directory}/opened\n')
    note.chmod(0o755)
    with start("inspect", "calculator.py", env={"BROWSER": f"{note} %s"}) as process:
        url = process.url()
        with opened(url) as client:
            servers(client, "calculator")
        opened_url = (directory / "opened").read_text().strip()
        file = Path(urlsplit(opened_url).path)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert f'content="0;url={url}"' in file.read_text()
        assert process.end(ending) == code
    assert not file.parent.exists()


def test_a_websocket_is_refused_without_advice(start: Start) -> None:
    with start("inspect", "calculator.py", "--no-browser") as process:
        with opened(process.url()) as client:
            headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
            assert client.get("/", headers={**headers, "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}).is_success
        assert process.end(signal.SIGTERM) == 0
    assert [line for line in process.seen if "pgrade" in line or "ebSocket" in line] == []

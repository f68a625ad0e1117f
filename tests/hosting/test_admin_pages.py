from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import httpx
import pytest

from tests import forks
from tests.cli.conftest import DEADLINE_SECONDS
from tests.cli.test_serve_http import HEADERS, OPENING

if TYPE_CHECKING:
    from tests.cli.conftest import Process, Run, Start

FAILING = Path(__file__).with_name("failing.py")
SERVE = ("--transport", "http", "--port", "0")


def configured(directory: Path, *, required: bool) -> None:
    """Write a configuration of one server, a child that writes its process ID to a file."""
    code = "import os, pathlib\nfrom bridge import tool\npathlib.Path('pid').write_text(str(os.getpid()))\n"
    (directory / "child.py").write_text(f"{code}@tool\ndef add(a: int, b: int) -> int:\n    return a + b\n")
    child = forks.entry("-m", "bridge", "serve", "child.py", cwd=str(directory))
    config = {"mcpServers": {"sums": {**child, "required": required}}}
    (directory / "mcp.json").write_text(json.dumps(config), encoding="utf-8")


def origin_of(process: Process) -> str:
    return process.url().removesuffix("/mcp")


def test_probes_and_status_are_beside_the_tools(start: Start) -> None:
    with start("serve", "calculator.py", *SERVE) as process:
        origin = origin_of(process)
        assert httpx.get(f"{origin}/healthz", headers={"host": "10.0.0.7"}).json() == {"status": "ok"}
        assert httpx.get(f"{origin}/readyz", headers={"host": "10.0.0.7"}).json() == {"ready": True, "missing": []}
        status = httpx.get(f"{origin}/status").json()
        assert (status["ready"], status["missing"], status["servers"]) == (True, [], [])
        assert httpx.get(f"{origin}/status", headers={"host": "10.0.0.7"}).status_code == 421
        assert httpx.get(f"{origin}/metrics").status_code == 404


def test_a_credential_is_asked_for_by_the_status_and_by_no_probe(start: Start) -> None:
    with start("serve", "calculator.py", *SERVE, env={"BRIDGE_API_KEY": "k" * 32}) as process:
        origin = origin_of(process)
        assert httpx.get(f"{origin}/healthz").status_code == httpx.get(f"{origin}/readyz").status_code == 200
        assert httpx.get(f"{origin}/status").status_code == 401
        assert httpx.get(f"{origin}/status", headers={"authorization": f"Bearer {'k' * 32}"}).status_code == 200


def test_a_key_for_some_tools_reads_neither_status_nor_metrics_which_name_all(start: Start, directory: Path) -> None:
    keys = {"whole": "w" * 32, "partial": "p" * 32}
    (directory / "keys").write_text(f"whole {keys['whole']}\npartial {keys['partial']} tools=shout\n")
    (directory / "keys").chmod(0o600)
    with start("serve", "calculator.py", *SERVE, "--metrics", "--api-keys", "keys") as process:
        origin = origin_of(process)
        for path in ("/status", "/metrics"):
            whole, partial = (
                httpx.get(f"{origin}{path}", headers={"authorization": f"Bearer {key}"}) for key in keys.values()
            )
            assert (whole.status_code, partial.status_code) == (200, 403)
            assert "add" not in partial.text
        assert httpx.get(f"{origin}/metrics").status_code == 401


def test_with_an_admin_port_they_are_only_there(start: Start) -> None:
    key = {"authorization": f"Bearer {'k' * 32}"}
    with start("serve", "calculator.py", *SERVE, "--admin-port", "0", env={"BRIDGE_API_KEY": "k" * 32}) as process:
        admin = process.line_with("operations at ").rpartition(" ")[2]
        origin = origin_of(process)
        for path in ("/healthz", "/readyz", "/status"):
            assert httpx.get(f"{origin}{path}", headers=key).status_code == 404
        assert httpx.get(f"{admin}/healthz").status_code == httpx.get(f"{admin}/readyz").status_code == 200
        assert [httpx.get(f"{admin}/status", headers=each).status_code for each in ({}, key)] == [401, 200]
        assert httpx.get(f"{admin}/status", headers={"host": "evil.example"}).status_code == 421
        assert httpx.post(f"{admin}/mcp", json=OPENING, headers=HEADERS).status_code == 404
        assert process.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(("options", "key", "status"), [((), "", 404), (("--no-auth",), "", 200), ((), "k" * 32, 401)])
def test_where_nobody_is_asked_for_a_credential_the_status_is_not_told_to_other_machines(
    start: Start, options: tuple[str, ...], key: str, status: int
) -> None:
    admin_port = ("--admin-port", "0", "--admin-host", "0.0.0.0")
    env = {"BRIDGE_API_KEY": key} if key else {}
    with start("serve", "calculator.py", *SERVE, *admin_port, *options, env=env) as process:
        admin = process.line_with("operations at ").rpartition(" ")[2].replace("0.0.0.0", "127.0.0.1")
        assert [httpx.get(f"{admin}{path}").status_code for path in ("/healthz", "/readyz", "/status")] == [
            200,
            200,
            status,
        ]


@pytest.mark.parametrize("required", [True, False])
def test_a_gateway_is_ready_while_its_required_servers_are(start: Start, directory: Path, *, required: bool) -> None:
    configured(directory, required=required)
    with start("serve", "mcp.json", *SERVE) as process:
        origin = origin_of(process)
        (row,) = httpx.get(f"{origin}/status").json()["servers"]
        assert (row["name"], row["state"], row["required"], row["reconnects"]) == ("sums", "ready", required, 0)
        assert (row["era"], row["lastError"]) == ("modern", None)
        assert "add" in row["tools"]
        (directory / "child.py").unlink()  # from which it would be started again
        os.kill(int((directory / "pid").read_text()), signal.SIGKILL)
        while httpx.get(f"{origin}/status").json()["servers"][0]["state"] == "ready":
            pass
        ready = httpx.get(f"{origin}/readyz")
        assert ready.status_code == (503 if required else 200)
        assert [text.rpartition(" is ")[0] for text in ready.json()["missing"]] == [
            "the required server 'sums'"
        ] * required
        assert httpx.get(f"{origin}/healthz").status_code == 200


def test_while_a_gateway_starts_the_process_is_healthy_and_not_ready(start: Start, directory: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "required": True}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"silent": silent}}), encoding="utf-8")
    with start("serve", "mcp.json", *SERVE, "--admin-port", "0") as process:
        admin = process.line_with("operations at ").rpartition(" ")[2]
        assert httpx.get(f"{admin}/healthz").status_code == 200
        ready = httpx.get(f"{admin}/readyz")
        assert ready.status_code == 503
        assert ready.json()["missing"][0] == "it has not started yet"
        assert process.end(signal.SIGTERM) == 0


def test_a_gateway_is_ready_while_it_waits_for_a_server_that_is_not_required(start: Start, directory: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"silent": silent}}), encoding="utf-8")
    with start("serve", "mcp.json", *SERVE, "--admin-port", "0", "--start-wait", "3600") as process:
        admin = process.line_with("operations at ").rpartition(" ")[2]
        deadline = monotonic() + DEADLINE_SECONDS
        while not (ready := httpx.get(f"{admin}/readyz").json())["ready"]:
            assert monotonic() < deadline, ready
        assert ready == {"ready": True, "missing": []}
        assert process.end(signal.SIGTERM) == 0


def test_a_server_that_ends_by_a_mistake_is_no_process_that_refuses_everything(start: Start) -> None:
    with start("serve", f"{FAILING}:TOOLS", *SERVE) as process:
        url = process.url()
        opened = httpx.post(url, json=OPENING, headers=HEADERS)
        headers = {**HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fail", "arguments": {}}}
        with suppress(httpx.TransportError):
            httpx.post(url, json=call, headers=headers)
        process.line_with("a mistake in the background")
        process.line_with("the server has failed; see the log")
        assert process.popen.wait(DEADLINE_SECONDS) == 1


def test_a_host_for_the_admin_port_does_nothing_without_one_and_that_is_said_once(start: Start) -> None:
    line = "bridge serve: --admin-host has no effect; add --admin-port"
    with start("serve", "calculator.py", *SERVE, "--admin-host", "127.0.0.1", "--workers", "2") as process:
        process.url()
        assert process.end(signal.SIGTERM) == 0
        assert [each for each in process.seen if "has no effect" in each] == [line]


def test_a_path_does_nothing_over_sse_and_that_is_said(start: Start) -> None:
    arguments = ["--transport", "sse", "--port", "0", "--path", "/tools"]
    with start("serve", "calculator.py", *arguments) as process:
        assert process.url().endswith("/sse")
        line = "bridge serve: --path has no effect; add --transport http, since SSE is served at /sse"
        assert line in process.seen


def test_tools_are_not_served_where_the_server_tells_of_itself(run: Run) -> None:
    done = run("serve", "calculator.py", *SERVE, "--path", "/readyz")
    assert done.returncode == 2
    assert "the path '/readyz' is an operational page of the server; choose another" in done.stderr

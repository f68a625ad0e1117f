from __future__ import annotations

import json
import signal
import socket
import sys
from http.client import HTTPConnection
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests import forks
from tests.server.stdio_process import modern_request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

SERVE = ("serve", "calculator.py", "--port", "0", "--transport")
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def post(url: str, message: Any, path: str | None = None, **headers: str) -> tuple[int, bytes]:
    """Post a message; returns the status and the body."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=40)
    try:
        connection.request("POST", path or parts.path, json.dumps(message), HEADERS | headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def status_of_stream(url: str, path: str) -> int:
    """Return the status of a GET that opens a stream."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=40)
    try:
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_line_and_the_entry_say_where_it_listens_on_a_free_port(start: Start) -> None:
    with start(*SERVE, "http") as process:
        url = process.url()
        parts = urlsplit(url)
        assert process.seen == ["printed at import", f"serving calculator at {url}"]
        assert (parts.scheme, parts.hostname, parts.path) == ("http", "127.0.0.1", "/mcp")
        assert parts.port not in {None, 0, 8000}
        entry = json.loads(process.line_with("mcpServers"))
        assert entry == {"mcpServers": {"calculator": {"type": "http", "url": url}}}
        assert post(url, OPENING)[0] == 200


def test_clients_are_told_the_instructions_and_the_version_over_http_too(start: Start) -> None:
    with start(*SERVE, "http", "--instructions", "Sums.", "--server-version", "7") as process:
        status, body = post(process.url(), OPENING)
        assert (status, b'"instructions":"Sums."' in body, b'"version":"7"' in body) == (200, True, True)


def test_http_serves_sse_beside_it_unless_told_otherwise(start: Start) -> None:
    with start(*SERVE, "http") as process:
        url = process.url()
        assert status_of_stream(url, "/sse") == 200
    with start(*SERVE, "http", "--no-sse") as process:
        url = process.url()
        assert status_of_stream(url, "/sse") == 404
        assert post(url, OPENING)[0] == 200


def test_sse_alone_is_served_where_the_line_says(start: Start) -> None:
    with start(*SERVE, "sse") as process:
        url = process.url()
        assert urlsplit(url).path == "/sse"
        assert json.loads(process.line_with("mcpServers"))["mcpServers"]["calculator"]["type"] == "sse"
        assert status_of_stream(url, "/sse") == 200
        assert post(url, OPENING, "/mcp")[0] == 404


@pytest.mark.parametrize("in_environment", [False, True])
def test_every_option_reaches_the_server(start: Start, *, in_environment: bool) -> None:
    options = {
        "TRANSPORT": "http",
        "HOST": "127.0.0.1",
        "PORT": "0",
        "PATH": "/tools",
        "ALLOWED_HOSTS": "one.example,two.example",
        "ALLOWED_ORIGINS": "https://page.example, https://other.example",
        "NO_SSE": "1",
        "NO_AUTH": "1",
        "PAGE_SIZE": "1",
        "MAX_REQUEST_BYTES": "500",
        "NAME": "sums",
        "LOG_LEVEL": "warning",
    }
    arguments = []
    for key, value in options.items():
        name = "--" + key.lower().replace("_", "-")
        arguments += [name] if key.startswith("NO_") else [name, value]
    env = {f"BRIDGE_{key}": value for key, value in options.items()}
    given = start("serve", "calculator.py", env=env) if in_environment else start("serve", "calculator.py", *arguments)
    with given as process:
        url = process.url()
        assert process.seen[-1] == f"serving sums at {url}"
        assert urlsplit(url).path == "/tools"
        assert post(url, OPENING)[0] == 200
        for host in ("one.example", "two.example:99", "localhost"):
            assert post(url, OPENING, Host=host)[0] == 200
        assert post(url, OPENING, Host="three.example")[0] == 421
        for origin in ("https://page.example", "https://other.example"):
            assert post(url, OPENING, Origin=origin)[0] == 200
        assert post(url, OPENING, Origin="https://evil.example")[0] == 403
        assert post(url, OPENING | {"padding": "x" * 500})[0] == 413
        assert status_of_stream(url, "/sse") == 404


def test_lists_on_the_command_line_are_repeatable(start: Start) -> None:
    with start(*SERVE, "http", "--allowed-hosts", "a.example", "--allowed-hosts", "b.example,c.example") as process:
        url = process.url()
        assert [post(url, OPENING, Host=f"{name}.example")[0] for name in "abcd"] == [200, 200, 200, 421]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_for_other_machines_is_refused_without_no_auth(run: Run, host: str) -> None:
    done = run(*SERVE, "http", "--host", host)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"bridge serve: --host {host} can be reached from other machines without a key: "
        "set BRIDGE_API_KEY, --api-keys or --oauth-issuer, add --no-auth if that is intended, "
        "or listen on 127.0.0.1 (see bridge serve --help)\n"
    )


def test_where_a_key_is_asked_for_the_entry_says_where_it_goes_and_not_what_it_is(start: Start) -> None:
    with start(*SERVE, "http", env={"BRIDGE_API_KEY": "a-key-that-is-long-enough"}) as process:
        line = process.line_with("mcpServers")
        headers = json.loads(line)["mcpServers"]["calculator"]["headers"]
        assert headers == {"Authorization": "Bearer ${BRIDGE_API_KEY}"}
        assert "a-key-that" not in "".join(process.seen)


def test_streamable_http_is_called_http(run: Run) -> None:
    done = run("serve", "calculator.py", "--transport", "streamable-http")
    assert (done.returncode, "'streamable-http' is not a transport" in done.stderr) == (2, True), done.stderr


def test_with_no_auth_it_listens_everywhere_and_the_entry_is_for_this_machine(start: Start) -> None:
    with start(*SERVE, "http", "--host", "0.0.0.0", "--no-auth") as process:
        url = process.url()
        assert urlsplit(url).hostname == "0.0.0.0"
        entry = json.loads(process.line_with("mcpServers"))["mcpServers"]["calculator"]
        assert entry["url"] == url.replace("0.0.0.0", "127.0.0.1")
        assert post(entry["url"], OPENING)[0] == 200


def test_a_name_of_this_machine_is_listened_on_at_all_its_addresses(start: Start) -> None:
    with start(*SERVE, "http", "--host", "localhost") as process:
        url = process.url()
        assert urlsplit(url).hostname == "localhost"
        assert post(url, OPENING)[0] == 200
        assert post(url.replace("localhost", "127.0.0.1"), OPENING)[0] == 200


@pytest.mark.parametrize(
    ("options", "named"), [(["--port"], "--port"), (["--port", "0", "--admin-port"], "admin port (--admin-port)")]
)
def test_a_busy_port_is_one_line_that_names_its_option(run: Run, options: list[str], named: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run("serve", "calculator.py", "--transport", "http", *options, str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        f"bridge: cannot listen on 127.0.0.1:{port}: Address already in use; "
        f"choose another {named} (0 for a free one), or end the program that listens there"
    )


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--redis-url", "localhost:6379"], 2, "bridge serve: --redis-url begins with redis://, rediss:// or unix://"),
        (["--event-callback-origins", "ftp:x"], 2, "bridge serve: --event-callback-origins: 'ftp:x' is not an origin"),
        (["--event-webhooks"], 0, "bridge serve: --event-webhooks has no effect; add --api-keys or --oauth-issuer"),
        (["--limits-claim", "limits"], 0, "bridge serve: --limits-claim has no effect; add --oauth-issuer"),
        (["--oauth-client-id", "x"], 0, "bridge serve: --oauth-client-id has no effect; add --oauth-introspection-url"),
        (["--embeddings-url", "http://x"], 0, "bridge serve: --embeddings-url has no effect; add --embeddings-model"),
        (["--embeddings-model", "x"], 0, "bridge serve: --embeddings-model has no effect; add --tools search, auto or"),
        (["--always-list", "x"], 0, "bridge serve: --always-list has no effect; add --tools search, auto or code"),
        (["--max-listed-tokens", "9"], 0, "bridge serve: --max-listed-tokens has no effect; add --tools auto"),
        (["--code-calls", "9"], 0, "bridge serve: --code-calls has no effect; add --tools code"),
        (["--prefix", "never"], 0, "bridge serve: --prefix has no effect; add a server"),
        (["--public-url", "http://x"], 0, "bridge serve: --public-url has no effect; add a server whose callers"),
        (["--pins", "mcp.lock.json"], 2, "bridge serve: --pins needs a server; the tools of a Python target cannot be"),
    ],
)
def test_a_check_reports_values_that_cannot_be_used_and_options_without_effect(
    run: Run, options: list[str], code: int, message: str
) -> None:
    done = run("serve", "calculator.py", "--transport", "http", "--check", *options)
    assert done.returncode == code
    assert any(line.startswith(message) for line in done.stderr.splitlines()), done.stderr


def test_options_of_a_configuration_are_not_without_effect(run: Run, directory: Path) -> None:
    entry = forks.entry("-m", "bridge", "serve", "calculator.py")
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry}, "tools": "code"}), encoding="utf-8")
    typed = ["--always-list", "x", "--code-calls", "9", "--prefix", "never", "--public-url", "http://x"]
    done = run("serve", "mcp.json", "--transport", "http", "--check", *typed)
    assert (done.returncode, "has no effect" in done.stderr) == (0, False), done.stderr


def test_a_check_names_programs_that_cannot_be_started(run: Run, directory: Path) -> None:
    (directory / "mine").touch(mode=0o700)
    commands = {"a": "/nonexistent/server", "b": "no-such-program", "c": sys.executable, "d": "./mine", "e": "./yours"}
    servers = {name: {"command": command, "cwd": str(directory)} for name, command in commands.items()}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    done = run("serve", "mcp.json", "--transport", "http", "--check")
    missing = [f"server {name!r}: command not found: {commands[name]!r}" for name in ("a", "b", "e")]
    assert (done.returncode, done.stderr.splitlines()[-3:]) == (1, missing)


def test_a_check_names_the_file_the_server_and_the_key_of_a_wrong_type(run: Run, directory: Path) -> None:
    servers = {"a": {"command": "x", "maxMemoryMib": "12"}, "b": forks.entry("-m", "bridge", "serve", "calculator.py")}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    done = run("serve", "mcp.json", "--transport", "http", "--check")
    line = f"{directory / 'mcp.json'}: server 'a', 'maxMemoryMib': must be a whole number"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, line)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--host", "no.such.host.invalid"], 1, "bridge: cannot listen on 'no.such.host.invalid': "),
        (["--port", "70000"], 2, "bridge serve: Invalid value for '--port': 70000 is not in"),
        (["--path", "mcp"], 2, "bridge serve: --path must begin with a slash, not 'mcp'"),
        (["--path", "/{x}"], 2, "bridge serve: a path begins with a slash and has no parameters: not '/{x}'"),
        (["--allowed-hosts", "http://x"], 2, "bridge serve: an allowed host is a name, with a port or without"),
        (["--allowed-origins", "x"], 2, "bridge serve: an allowed origin has a scheme and a host"),
        (["--page-size", "0"], 2, "bridge serve: Invalid value for '--page-size'"),
        (["--max-request-bytes", "0"], 2, "bridge serve: Invalid value for '--max-request-bytes'"),
        (["--transport", "sse", "--no-sse"], 2, "bridge serve: --transport sse and --no-sse exclude each other"),
        (["--log-level", "loud"], 2, "bridge serve: Invalid value for '--log-level'"),
        (["nothing.py"], 2, "bridge: there is no file 'nothing.py'"),
    ],
)
def test_what_cannot_be_served_is_one_line(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run("serve", "calculator.py", "--transport", "http", "--port", "0", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.removeprefix("printed at import\n").startswith(message)
    assert done.stderr.removeprefix("printed at import\n").count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_though_streams_are_open(start: Start, number: int, code: int) -> None:
    with start(*SERVE, "http") as process:
        url = urlsplit(process.url())
        connection = HTTPConnection(url.hostname or "", url.port, timeout=40)
        connection.request("GET", "/sse", headers={"Accept": "text/event-stream"})
        assert connection.getresponse().status == 200
        assert process.end(number) == code
        connection.close()
        assert process.popen.stdout is not None
        assert process.popen.stdout.read() == ""
        assert not [line for line in process.seen if "Traceback" in line or "ERROR" in line]


@pytest.mark.parametrize("decorator", ["@tool", "@tool(run_in_thread=False)"])
def test_a_tool_that_raises_what_a_signal_raises_does_not_end_it(start: Start, directory: Any, decorator: str) -> None:
    (directory / "interrupting.py").write_text(
        f"from bridge import tool\n{decorator}\ndef interrupt() -> None:\n    raise KeyboardInterrupt\n"
    )
    with start("serve", "interrupting.py", "--transport", "http", "--port", "0") as process:
        url = process.url()
        for number in range(2):
            message = modern_request(number, "tools/call", name="interrupt")
            mirrored = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "interrupt"}
            status, body = post(url, message, **mirrored)
            assert (status, b"the tool tried to end the process" in body) == (200, True)


def test_requests_are_logged_only_while_debugging(start: Start) -> None:
    with start(*SERVE, "http") as process:
        post(process.url(), OPENING)
        process.end(signal.SIGTERM)
        assert len(process.seen) == 3, process.seen
    with start(*SERVE, "http", "--log-level", "debug") as process:
        post(process.url(), OPENING)
        assert "200" in process.line_with("POST /mcp")


@pytest.mark.skipif(find_spec("uvloop") is None or find_spec("httptools") is None, reason="the extra is not installed")
def test_the_faster_loop_and_parser_are_used_where_they_are_installed(start: Start, directory: Any) -> None:
    (directory / "loop.py").write_text(
        "import asyncio, sys\nfrom bridge import tool\n@tool\nasync def parts() -> str:\n"
        "    parser = 'bridge.hosting.http.httptools_parser'\n"
        "    return f'{type(asyncio.get_running_loop()).__module__} {parser in sys.modules}'\n"
    )
    with start("serve", "loop.py", "--port", "0", "--transport", "http", "--no-sse") as process:
        status, body = post(
            process.url(),
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {
                    "name": "parts",
                    "arguments": {},
                    "_meta": {
                        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                        "io.modelcontextprotocol/clientCapabilities": {},
                    },
                },
            },
            **{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "parts"},
        )
    assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "uvloop True")

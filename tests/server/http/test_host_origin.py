"""The host and origin guard, by raw bytes and raw requests to a real server."""

from __future__ import annotations

import json
import logging
import socket
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.server import http_app
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_server import HEADERS, answer, call, initialize, modern, modern_headers
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module", params=["h11", "httptools"])
def http(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def origin(http: str) -> Iterator[str]:
    with http_server.serving(allowing_some(), http=http) as origin:
        yield origin


@pytest.fixture
def new_origin(http: str) -> Iterator[str]:
    """The origin of a server that has refused nothing yet."""
    with http_server.serving(allowing_some(), http=http) as origin:
        yield origin


def allowing_some() -> Starlette:
    return http_app(ToolBox(ADD), allowed_hosts=["tools.example"], allowed_origins=["https://app.example"])


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def exchange(origin: str, *lines: str, body: bytes = b"") -> bytes:
    """Send raw bytes; return all bytes until the server closes the connection."""
    port = int(origin.rsplit(":", 1)[1])
    head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        connection.sendall(head + body)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


PLACES = [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/sse"), ("POST", "/messages/?session_id=0")]


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_an_unknown_host_is_refused_everywhere_and_the_log_says_what_to_pass(
    new_origin: str, method: str, path: str, errors: Callable[[], list[str]], warnings: Callable[[], list[str]]
) -> None:
    refusal = httpx.request(method, new_origin + path, headers=HEADERS | {"host": "evil.example:80"}, content=b"{")
    assert refusal.status_code == 421
    assert refusal.json()["error"]["code"] == -32600
    (said,) = warnings()
    assert "--allowed-hosts evil.example " in said
    assert errors() == []


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_so_is_a_page_of_an_unknown_origin(
    new_origin: str, method: str, path: str, errors: Callable[[], list[str]], warnings: Callable[[], list[str]]
) -> None:
    refusal = httpx.request(
        method, new_origin + path, headers=HEADERS | {"origin": "http://evil.example"}, content=b"{"
    )
    assert refusal.status_code == 403
    (said,) = warnings()
    assert "--allowed-origins http://evil.example " in said
    assert errors() == []


@pytest.mark.parametrize(
    "headers", [{"host": "tools.example"}, {"host": "localhost:1", "origin": "https://app.example"}, {"origin": ""}]
)
def test_what_is_allowed_passes(origin: str, headers: dict[str, str]) -> None:
    assert httpx.post(f"{origin}/mcp", json=initialize(), headers=HEADERS | headers).status_code == 200


@pytest.mark.parametrize("name", ["host", "origin"])
def test_refusals_of_a_client_that_follow_one_another_are_logged_once(
    new_origin: str, warnings: Callable[[], list[str]], name: str
) -> None:
    with httpx.Client() as client:
        for number in range(30):
            refusal = client.post(f"{new_origin}/mcp", headers=HEADERS | {name: f"http://evil-{number}.example"})
            assert refusal.status_code in {403, 421}
    assert len(warnings()) == 1


def test_what_a_client_writes_stays_on_one_line_of_the_log(origin: str, warnings: Callable[[], list[str]]) -> None:
    exchange(origin, "GET /sse HTTP/1.1", "Host: evil\x85ERROR " + "x" * 500)
    for said in warnings():
        assert len(said.splitlines()) == 1
        assert len(said) < 1000


def test_a_request_without_a_host_is_refused(origin: str, errors: Callable[[], list[str]]) -> None:
    assert exchange(origin, "GET /sse HTTP/1.0").split(b"\r\n")[0].endswith(b"400 Bad Request")
    assert errors() == []


@pytest.mark.parametrize(
    "lines",
    [
        ["Host: localhost", "Host: evil.example"],
        ["Host: localhost", "Origin: http://evil.example", "Origin: http://localhost"],
        ["Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"],
    ],
)
def test_a_request_with_two_hosts_or_origins_is_refused(
    origin: str, lines: list[str], errors: Callable[[], list[str]]
) -> None:
    head = exchange(origin, "GET /sse HTTP/1.1", *lines).split(b"\r\n")[0]
    assert head.endswith(b"400 Bad Request")
    assert errors() == []


@pytest.mark.parametrize("value", ["add \t", " add", "add"])
def test_space_around_the_values_of_headers_does_not_count(origin: str, value: str) -> None:
    message = modern(call("add", {"a": 1, "b": 2}))
    body = json.dumps(message).encode()
    headers = modern_headers(message) | {"mcp-name": value, "content-length": str(len(body)) + " "}
    lines = [f"{name}: {text}" for name, text in headers.items()]
    reply = exchange(origin, "POST /mcp HTTP/1.1", "Host: localhost ", *lines, body=body)
    assert reply.split(b"\r\n")[0] == b"HTTP/1.1 200 OK"
    assert b'"text":"3"' in reply


@pytest.mark.parametrize("path", ["/mcp", "/messages/?session_id=" + "0" * 32])
def test_a_client_that_goes_away_in_the_middle_of_its_body_leaves_no_trace(
    origin: str, path: str, errors: Callable[[], list[str]]
) -> None:
    port = int(origin.rsplit(":", 1)[1])
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *(f"{k}: {v}" for k, v in HEADERS.items())]
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        connection.sendall("\r\n".join([*lines, "Content-Length: 1000", "", '{"jsonrpc"']).encode())
    reply = httpx.post(f"{origin}/mcp", json=initialize(), headers=HEADERS)
    assert answer(reply)["result"]["serverInfo"]["name"] == "bridge"
    assert errors() == []


@pytest.mark.parametrize("path", ["/mcp", "/messages/?session_id=" + "0" * 32])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_over_the_limit_is_refused_before_it_was_read(
    serving: Callable[..., str], path: str, chunked: bool, errors: Callable[[], list[str]]
) -> None:
    origin = serving(http_app(ToolBox(ADD), max_request_bytes=100))
    size = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000000000"
    body = b"65\r\n" + b" " * 0x65 + b"\r\n" if chunked else b""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", size, *(f"{k}: {v}" for k, v in HEADERS.items())]
    assert exchange(origin, *lines, body=body).split(b"\r\n")[0].startswith(b"HTTP/1.1 413")
    assert errors() == []


@pytest.mark.parametrize("garbage", [b"\x00" * 2000, b"GET\r\n\r\n", b"POST /mcp HTTP/9.9\r\n\r\n"])
def test_bytes_that_are_no_http_harm_nobody(origin: str, garbage: bytes, errors: Callable[[], list[str]]) -> None:
    port = int(origin.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert httpx.post(f"{origin}/mcp", json=initialize(), headers=HEADERS).status_code == 200
    assert errors() == []

"""Requests that an ASGI app answers, over real connections with both parsers."""

from __future__ import annotations

import logging
import re
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from bridge.hosting.http.h11_parser import H11Parser
from bridge.hosting.http.httptools_parser import HttptoolsParser
from bridge.hosting.serve import http_protocol
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from bridge.hosting.http.parser import HttpParser

DEADLINE_SECONDS = 60
PARSERS = pytest.mark.parametrize("parser", [HttptoolsParser, H11Parser])


class Raw:
    """An ASGI app that sends messages as they are."""

    def __init__(self, *messages: dict[str, Any], error: bool = False) -> None:
        self._messages, self._error = messages, error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages."""
        for message in self._messages:
            await send(message)
        if self._error:
            raise ValueError("broken")


async def _echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _facts(request: Request) -> Response:
    scope = request.scope
    names = ("http_version", "method", "path", "raw_path", "query_string", "scheme")
    return PlainTextResponse(str([scope[name] for name in names]))


async def _unread(_: Request) -> Response:
    return PlainTextResponse("not read", 413)


async def _parts(_: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        yield b""
        yield b"last"

    return StreamingResponse(parts())


gone = threading.Event()


class Waiting:
    """An ASGI app that waits until its client has gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin a response, and wait."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"dropped"})
        gone.set()


START = {"type": "http.response.start", "status": 200}
LENGTH = {"headers": [(b"content-length", b"4")]}
BODY = {"type": "http.response.body", "body": b"body"}


@contextmanager
def served(parser: type[HttpParser], **settings: Any) -> Iterator[int]:
    routes = [
        Route("/echo", _echo, methods=["POST"]),
        Route("/facts/{rest:path}", _facts),
        Route("/unread", _unread, methods=["POST"]),
        Route("/parts", _parts),
        Route("/waiting", Waiting()),
        Route("/fails", Raw(error=True)),
        Route("/fails-later", Raw({**START, **LENGTH}, error=True)),
        Route("/silent", Raw()),
        Route("/incomplete", Raw({**START, **LENGTH})),
        Route("/too-long", Raw({**START, **LENGTH}, {**BODY, "body": b"longer"})),
        Route("/name", Raw({**START, "headers": [(b"a: b\r\nc", b"d")]})),
        Route("/value", Raw({**START, "headers": [(b"a", b"b\r\nc: d")]})),
        Route("/order", Raw(BODY)),
        Route("/twice", Raw({**START, **LENGTH}, BODY, BODY)),
    ]
    with http_server.serving(Starlette(routes=routes), http=http_protocol(parser=parser), **settings) as origin:
        yield int(origin.rpartition(":")[2])


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS) as connection:
        yield connection


def get(target: str, *headers: str, method: str = "GET", version: str = "1.1", body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: x", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def until(connection: socket.socket, end: bytes) -> bytes:
    text = b""
    while not text.endswith(end):
        part = connection.recv(65_536)
        assert part, text
        text += part
    return text


CLOSE = "Connection: close"


@PARSERS
def test_bodies_are_received_in_any_form(parser: type[HttpParser]) -> None:
    long = b"x" * 300_000
    with served(parser) as port, connected(port) as connection:
        for body in (b"", b"short", long):
            connection.sendall(get("/echo", f"Content-Length: {len(body)}", method="POST", body=body))
            assert until(connection, b"\r\n\r\n" + body).startswith(b"HTTP/1.1 200 OK\r\n")
        chunks = b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"
        connection.sendall(get("/echo", "Transfer-Encoding: chunked", method="POST", body=chunks))
        assert until(connection, b"\r\n\r\nfirstlast")


@PARSERS
def test_a_body_that_the_client_holds_back_is_asked_for_once_it_is_wanted(parser: type[HttpParser]) -> None:
    expecting = get("/echo", "Content-Length: 4", "Expect: 100-continue", method="POST")
    with served(parser) as port, connected(port) as connection:
        connection.sendall(expecting)
        assert until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert until(connection, b"\r\n\r\nbody").startswith(b"HTTP/1.1 200 OK\r\n")
        connection.sendall(expecting.replace(b"/echo", b"/unread"))
        assert until(connection, b"\r\n\r\nnot read").startswith(b"HTTP/1.1 413 ")
        connection.sendall(b"body" + expecting + b"body")
        text = until(connection, b"\r\n\r\nbody")
        assert b"200 OK" in text


@PARSERS
@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/facts/a%20b/%E2%82%AC?c=%20", ["/facts/a b/€", b"/facts/a%20b/%E2%82%AC", b"c=%20"]),
        ("http://host/facts/a?b", ["/facts/a", b"/facts/a", b"b"]),
        ("/facts/a#b?c", ["/facts/a", b"/facts/a", b""]),
    ],
)
def test_the_target_is_read_as_path_and_query(parser: type[HttpParser], target: str, found: list[object]) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get(target, CLOSE))
        text = until_closed(connection).decode()
    assert text.endswith(str(["1.1", "GET", *found, "http"]))


@PARSERS
@pytest.mark.parametrize("target", ["http://host", "host:80", "facts"])
def test_a_target_without_a_path_is_malformed(parser: type[HttpParser], target: str) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get(target))
        assert until_closed(connection).startswith(b"HTTP/1.1 400 ")


@PARSERS
def test_a_response_without_a_length_is_sent_in_chunks(parser: type[HttpParser]) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get("/parts"))
        head, _, body = until(connection, b"0\r\n\r\n").partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head.splitlines()
        assert body == b"5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n"
        connection.sendall(get("/parts", method="HEAD") + get("/facts/a", CLOSE))
        first, _, second = until_closed(connection).partition(b"\r\n\r\n")
        assert b"chunked" not in first
        assert second.startswith(b"HTTP/1.1 200 OK\r\n")
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get("/parts", version="1.0"))
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
        assert (body, b"connection: close" in head.splitlines()) == (b"firstlast", True)


@PARSERS
def test_an_app_is_told_that_its_client_has_gone(parser: type[HttpParser]) -> None:
    gone.clear()
    with served(parser) as port:
        with connected(port) as connection:
            connection.sendall(get("/waiting"))
            until(connection, b"\r\n\r\n")
        assert gone.wait(DEADLINE_SECONDS)


@PARSERS
@pytest.mark.parametrize("target", ["/fails", "/silent", "/name", "/value", "/order"])
def test_an_app_that_fails_before_its_response_is_answered_500(
    parser: type[HttpParser], target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get(target, CLOSE))
        text = until_closed(connection)
    assert text.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert text.endswith(b"\r\n\r\nInternal Server Error")
    assert [record.name for record in caplog.records] == ["uvicorn.error"]


@PARSERS
@pytest.mark.parametrize("target", ["/fails-later", "/incomplete", "/too-long"])
def test_a_response_that_is_not_complete_is_broken_off(
    parser: type[HttpParser], target: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get(target))
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert (head.startswith(b"HTTP/1.1 200 OK\r\n"), body) == (True, b"")
    assert [record.name for record in caplog.records] == ["uvicorn.error"]


@PARSERS
def test_what_an_app_sends_after_its_response_reaches_no_other(parser: type[HttpParser]) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(get("/twice") + get("/facts/a", CLOSE))
        text = until_closed(connection)
    assert text.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert b"\r\n\r\nbodyHTTP/1.1 200 OK" in text


@PARSERS
def test_what_is_malformed_is_answered_behind_the_requests_before_it(parser: type[HttpParser]) -> None:
    with served(parser) as port, connected(port) as connection:
        connection.sendall(
            get("/facts/a") + get("/echo", "Content-Length: 4", method="POST", body=b"body") + b"?\r\n\r\n"
        )
        text = until_closed(connection)
    assert re.findall(rb"HTTP/1.1 (\d+) ", text) == [b"200", b"200", b"400"]


@PARSERS
def test_requests_are_logged_if_that_is_wanted(parser: type[HttpParser], caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "uvicorn.access"),
        served(parser, access_log=True) as port,
        connected(port) as connection,
    ):
        connection.sendall(get("/facts/a%20b?c=d", CLOSE))
        until_closed(connection)
        address = "{}:{}".format(*connection.getsockname())
    messages = [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]
    assert messages == [f'{address} - "GET /facts/a%20b?c=d HTTP/1.1" 200']

"""Upgrades are ignored: the body of such a request stays a body, and the connection continues."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from bridge.hosting.http.limits import ConnectionLimits
from bridge.tools.function import tool
from tests.cli.bounding import CALL, PROTOCOLS, answer, answers, connected, served
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    import socket

BOUNDS = ConnectionLimits()
HEAD_BYTES = CALL.index(b"\r\n\r\n") + 4
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
OFFERS = pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade\r\nUpgrade: foo\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n",
        H2C,
    ],
    ids=["foo", "websocket", "h2c"],
)

hidden_runs = threading.Event()


@tool
def hidden() -> str:
    """Record that it ran."""
    hidden_runs.set()
    return "ran"


HIDDEN = modern("tools/call", name="hidden", arguments={}).raw


def offering(offer: bytes, raw: bytes = CALL) -> bytes:
    return raw.replace(b"\r\n", b"\r\n" + offer, 1)


def results(found: list[tuple[bytes, Any]]) -> list[Any]:
    return [body["result"]["structuredContent"]["result"] for _, body in found]


def send_in_parts(connection: socket.socket, port: int, raw: bytes, *cuts: int) -> None:
    """Send parts, each after the server has read the one before: it responds on another connection."""
    starts = [0, *cuts]
    for start, end in zip(starts, [*cuts, len(raw)], strict=True):
        connection.sendall(raw[start:end])
        with connected(port) as other:
            assert answer(other, CALL).startswith(b"HTTP/1.1 200 ")


@PROTOCOLS
@OFFERS
@pytest.mark.parametrize("cut", [None, 30, 0, 7], ids=["whole", "in the head", "behind the head", "in the body"])
def test_a_request_that_offers_an_upgrade_is_answered_as_without(protocol: str, offer: bytes, cut: int | None) -> None:
    raw = offering(offer)
    at = 30 if cut == 30 else HEAD_BYTES + len(offer) + (cut or 0)
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        send_in_parts(connection, port, raw, *([] if cut is None else [at]))
        assert results(answers(connection, 1)) == [3]
        connection.sendall(CALL)
        assert results(answers(connection, 1)) == [3]


@PROTOCOLS
@OFFERS
@pytest.mark.parametrize("is_split", [False, True])
def test_the_body_of_a_request_that_offers_an_upgrade_is_no_request(
    protocol: str, offer: bytes, *, is_split: bool
) -> None:
    hidden_runs.clear()
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n" % (offer, len(HIDDEN))
    with served(protocol, BOUNDS, hidden) as port, connected(port) as connection:
        send_in_parts(connection, port, head + HIDDEN, *([len(head)] if is_split else []))
        ((status, _),) = answers(connection, 1)
        assert status.startswith(b"HTTP/1.1 4")
        with connected(port) as other:
            other.sendall(CALL)
            assert results(answers(other, 1)) == [3]
        assert not hidden_runs.is_set()


@PROTOCOLS
def test_a_body_in_chunks_behind_an_offer_stays_a_body(protocol: str) -> None:
    head, _, body = offering(H2C).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    chunked = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body, b"0", b"", b""])
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        send_in_parts(connection, port, chunked, chunked.index(b"\r\n\r\n") + 10)
        assert results(answers(connection, 1)) == [3]


@PROTOCOLS
def test_offers_in_a_row_are_answered_each(protocol: str) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        connection.sendall(offering(H2C) * 20 + CALL)
        assert results(answers(connection, 21)) == [3] * 21


@PROTOCOLS
def test_an_application_does_not_see_the_offer_and_nothing_is_logged(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        connection.sendall(offering(H2C))
        answers(connection, 1)
    assert caplog.records == []


@PROTOCOLS
@pytest.mark.parametrize("target", [b"localhost:443", b"/mcp"])
def test_connect_is_refused_and_nothing_behind_it_is_run(protocol: str, target: bytes) -> None:
    hidden_runs.clear()
    raw = b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (target, len(HIDDEN))
    with served(protocol, BOUNDS, hidden) as port, connected(port) as connection:
        assert answer(connection, raw + HIDDEN).startswith(b"HTTP/1.1 4")
        with connected(port) as other:
            assert answer(other, CALL).startswith(b"HTTP/1.1 200 ")
        assert not hidden_runs.is_set()

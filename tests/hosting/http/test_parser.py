"""Bytes in, events out: both parsers give the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.hosting.http.h11_parser import H11Parser
from bridge.hosting.http.httptools_parser import HttptoolsParser
from bridge.hosting.http.parser import MALFORMED, RequestHead

if TYPE_CHECKING:
    from bridge.hosting.http.parser import HttpParser

PARSERS = pytest.mark.parametrize("kind", [HttptoolsParser, H11Parser])
HOST = (b"host", b"x")


GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nTrailer: x\r\n\r\n"
UPGRADE = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"


def events(parser: HttpParser, *parts: bytes) -> list[Any]:
    """Return all events, with the parts of a body joined."""
    found: list[Any] = []
    for event in (event for part in parts for event in parser.feed(part)):
        if isinstance(event, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += event
        else:
            found.append(event)
    return found


HEADS: dict[bytes, list[Any]] = {
    GET: [RequestHead("GET", b"/a?b=c", [HOST], "1.1", keeps_alive=True), None],
    POST: [RequestHead("POST", b"/mcp", [HOST, (b"content-length", b"4")], "1.1", keeps_alive=True), b"body", None],
    CHUNKED: [
        RequestHead("POST", b"/mcp", [HOST, (b"transfer-encoding", b"chunked")], "1.1", keeps_alive=True),
        b"body",
        None,
    ],
    UPGRADE: [
        RequestHead(
            "POST",
            b"/",
            [HOST, (b"connection", b"upgrade"), (b"content-length", b"4")],
            "1.1",
            keeps_alive=True,
        ),
        b"body",
        None,
    ],
}


@PARSERS
@given(requests=st.lists(st.sampled_from(list(HEADS)), min_size=1, max_size=4), data=st.data())
def test_requests_are_the_same_in_any_parts(kind: type[HttpParser], requests: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(requests)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=5)))
    parts = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    parser = kind()
    assert parser.is_between_requests
    assert events(parser, *parts) == [event for each in requests for event in HEADS[each]]
    assert parser.is_between_requests
    parser.close()


@PARSERS
@pytest.mark.parametrize("raw", list(HEADS))
def test_a_part_of_a_request_is_none(kind: type[HttpParser], raw: bytes) -> None:
    parser = kind()
    for position in range(len(raw)):
        parser.feed(raw[position : position + 1])
        assert parser.is_between_requests is (position + 1 == len(raw))


@PARSERS
@pytest.mark.parametrize("raw", [LAST, OLD])
def test_a_request_may_be_the_last(kind: type[HttpParser], raw: bytes) -> None:
    head, end, *rest = events(kind(), raw, GET)
    assert (head.keeps_alive, end) == (False, None)
    assert rest in ([], [MALFORMED], HEADS[GET])


@PARSERS
@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_behind_a_malformed_request_nothing_is_parsed(kind: type[HttpParser], raw: bytes) -> None:
    parser = kind()
    assert events(parser, GET + raw, GET, GET) == [*HEADS[GET], MALFORMED]


@PARSERS
def test_a_request_without_a_version_that_offers_an_upgrade_is_malformed(kind: type[HttpParser]) -> None:
    assert events(kind(), UPGRADE.replace(b" HTTP/1.1", b""), GET)[-1] is MALFORMED


@PARSERS
@given(raw=st.lists(st.sampled_from([*HEADS, LAST, OLD, b"\r\n", b"0", b":", b" ", b"\x00", b"POST /"])).map(b"".join))
def test_no_bytes_break_a_parser(kind: type[HttpParser], raw: bytes) -> None:
    parser = kind()
    for part in filter(None, (raw[:40], raw[40:], GET)):
        for event in parser.feed(part):
            assert event is None or event is MALFORMED or isinstance(event, bytes | RequestHead)

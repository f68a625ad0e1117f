"""Responses: joined writes, parts that wait for the client, one response for each request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.hosting.connections import GET, connected, turn

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from bridge.hosting.http.connection import Connection
    from bridge.hosting.http.reply import Reply
    from tests.hosting.connections import FakeTransport

pytestmark = pytest.mark.anyio
TEXT = (b"content-type", b"text/plain")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def replying(method: str = "GET", version: str = "1.1") -> tuple[Reply, Connection, FakeTransport]:
    connection, transport = connected()
    scope = {"type": "http", "method": method, "http_version": version, "headers": []}
    return connection.new_reply(scope, keeps_alive=version == "1.1"), connection, transport


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def test_a_whole_response_is_one_write() -> None:
    reply, connection, transport = replying()
    reply.respond(200, [TEXT], b"body")
    assert transport.written == [HEAD + b"content-length: 4\r\n\r\nbody"]
    assert (reply.is_open, reply.is_complete, connection.is_idle) == (False, True, True)


async def test_the_head_is_joined_with_the_first_part_and_the_last_part_with_its_end() -> None:
    reply, _, transport = replying()
    reply.begin(200, [TEXT])
    assert transport.written == []
    await reply.write(b"first")
    reply.end(b"last")
    await turn()
    assert transport.written == [CHUNKED + b"5\r\nfirst\r\n", b"4\r\nlast\r\n0\r\n\r\n"]
    assert not transport.is_closed


async def test_a_head_alone_is_sent_in_the_next_turn_of_the_loop() -> None:
    reply, _, transport = replying()
    reply.begin(200, [TEXT])
    await turn()
    assert transport.written == [CHUNKED]
    await reply.write(b"")
    reply.end()
    await turn()
    assert transport.written == [CHUNKED, b"0\r\n\r\n"]


async def test_a_head_alone_is_sent_before_its_response_is_broken_off() -> None:
    reply, _, transport = replying()
    reply.begin(200, [TEXT])
    reply.close()
    await turn()
    assert (transport.written, transport.is_closed) == ([CHUNKED], True)


async def test_a_response_with_a_length_is_not_sent_in_chunks() -> None:
    reply, _, transport = replying()
    reply.begin(200, [TEXT, (b"Content-Length", b"9")])
    await reply.write(b"first")
    reply.end(b"last")
    assert transport.written == [HEAD + b"content-length: 9\r\n\r\nfirst", b"last"]


@pytest.mark.parametrize(("length", "problem"), [(b"3", "longer"), (b"6", "shorter")])
async def test_a_response_of_another_length_than_it_has_is_an_error(length: bytes, problem: str) -> None:
    reply, _, _ = replying()
    reply.begin(200, [(b"content-length", length)])
    with pytest.raises(RuntimeError, match=problem):
        reply.end(b"body")
    assert not reply.is_complete


async def test_http_1_0_has_no_chunks_and_its_connection_ends_the_response() -> None:
    reply, _, transport = replying(version="1.0")
    reply.begin(200, [TEXT])
    await reply.write(b"first")
    reply.end(b"last")
    assert transport.written == [HEAD + b"connection: close\r\n\r\nfirst", b"last"]
    assert transport.is_closed


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_responses_without_a_body_are_sent_without_one(method: str, status: int) -> None:
    reply, connection, transport = replying(method)
    reply.begin(status, [TEXT])
    await reply.write(b"first")
    reply.end(b"last")
    assert [data.partition(b"\r\n")[2] for data in transport.written] == [b"content-type: text/plain\r\n\r\n"]
    assert connection.is_idle


async def test_the_app_may_close_the_connection_after_its_response() -> None:
    reply, _, transport = replying()
    reply.begin(200, [(b"Connection", b"Foo, Close"), (b"content-length", b"0")])
    reply.end()
    assert transport.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"]
    assert transport.is_closed


async def test_a_part_waits_until_the_client_has_read_enough() -> None:
    reply, connection, transport = replying()
    reply.begin(200, [])
    await reply.write(b"first")
    connection.pause_writing()
    writing = asyncio.create_task(reply.write(b"second"))
    for _ in range(3):
        await turn()
    assert not writing.done()
    connection.resume_writing()
    await writing
    assert transport.written[-1] == b"6\r\nsecond\r\n"


async def test_a_client_that_goes_is_reported_once_and_gets_nothing_more() -> None:
    reply, connection, transport = replying()
    reported: list[bool] = []
    reply.on_close = lambda: reported.append(reply.is_open)
    reply.begin(200, [])
    connection.pause_writing()
    writing = asyncio.create_task(reply.write(b"first"))
    await turn()
    transport.close()
    connection.connection_lost(None)
    await writing
    written = list(transport.written)
    await reply.write(b"second")
    reply.end(b"last")
    reply.close()
    assert (transport.written, reported, reply.is_complete) == (written, [False], False)


async def test_a_reply_of_a_client_that_has_gone_begins_without_an_error() -> None:
    for begin in ("begin", "respond"):
        reply, connection, transport = replying()
        transport.close()
        connection.connection_lost(None)
        if begin == "begin":
            reply.begin(200, [])
        else:
            reply.respond(200, [], b"body")
        await turn()
        assert transport.written == []


async def test_a_request_is_answered_once() -> None:
    reply, _, transport = replying()
    reply.respond(200, [], b"one")
    with pytest.raises(RuntimeError, match="has begun"):
        reply.respond(200, [], b"two")
    with pytest.raises(RuntimeError, match="has begun"):
        reply.begin(200, [])
    await reply.write(b"part")
    reply.end(b"last")
    assert len(transport.written) == 1


async def test_a_server_that_shuts_down_closes_the_connection_behind_the_last_response() -> None:
    may_end = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    connection, transport = connected(app)
    connection.data_received(GET + GET)
    connection.shutdown()
    may_end.set()
    while not transport.is_closed:
        await turn()
    assert [b"connection: close" in data for data in transport.written] == [False, True]

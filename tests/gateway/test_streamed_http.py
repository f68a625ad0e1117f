"""HTTP around contents that pass a gateway in parts: its versions, further data of the caller, unusual responses."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.client.raw_http import MODERN, Request
from tests.gateway.test_streamed_reads import (
    DEADLINE_SECONDS,
    PART,
    URI,
    callers,
    chunked,
    none_runs,
    reads,
    serving,
    text_of,
)
from tests.server.http_server import modern, modern_headers, request

if TYPE_CHECKING:
    from tests.gateway.test_streamed_reads import Caller

pytestmark = pytest.mark.anyio
PROTOCOLS = pytest.mark.parametrize("protocol", ["direct", "asgi", "h11"])
END_OF_HEAD, LAST_CHUNK = b"\r\n\r\n", b"\r\n0\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def read_request(version: str) -> bytes:
    message = modern(request("resources/read", {"uri": URI}, 5))
    body = json.dumps(message).encode()
    headers = {"host": "127.0.0.1", "content-length": len(body), **modern_headers(message)}
    lines = [f"POST /mcp HTTP/{version}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


async def connected(caller: Caller) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", caller.client.base_url.port)


@PROTOCOLS
async def test_a_caller_of_http_1_0_gets_the_whole_result_with_its_length(protocol: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            serving(MODERN, lambda asked: chunked("json", *text_of(asked))) as server,
            callers(server, protocol=protocol) as caller,
        ):
            reader, writer = await connected(caller)
            writer.write(read_request("1.0"))
            head, _, body = (await reader.read()).partition(END_OF_HEAD)
            writer.close()
    assert b"transfer-encoding" not in head.lower()
    assert b"content-length: %d" % len(body) in head.lower()
    assert json.loads(body)["result"]["contents"][0]["uri"] == URI


@PROTOCOLS
async def test_nothing_is_written_into_a_response_that_has_begun(protocol: str) -> None:
    arrived = asyncio.Event()

    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return chunked("json", first, arrived, last)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server, protocol=protocol) as caller:
            reader, writer = await connected(caller)
            writer.write(read_request("1.1"))
            received = await reader.readexactly(len(PART) // 2)
            writer.write(b"this is not HTTP\r\n\r\n")
            arrived.set()  # what follows is answered once the response has ended
            received += await reader.read()
            writer.close()
            await none_runs(caller)
    body, ending, rest = received.partition(END_OF_HEAD)[2].partition(LAST_CHUNK)
    assert ending
    assert rest.startswith(b"HTTP/1.1 400")
    assert b"HTTP/1.1" not in body


@pytest.mark.parametrize("unusual", [b',"error":null', b',"method":null'])
async def test_a_response_that_is_unusual_after_its_contents_is_passed_on(unusual: bytes) -> None:
    def answer(asked: Request) -> Any:
        first, last = text_of(asked, is_first=False)
        return chunked("json", first, last[:-1] + unusual + b"}")

    async with serving(MODERN, answer) as server, callers(server) as caller, caller.reading() as response:
        assert json.loads(await response.aread())["result"]["contents"][0]["uri"] == URI
        assert "transfer-encoding" in response.headers


async def test_a_read_whose_contents_are_followed_by_an_error_is_not_repeated() -> None:
    error = b',"error":{"code":-32000,"message":"Connection closed"}}'

    def answer(asked: Request) -> Any:
        first, last = text_of(asked, is_first=False)
        return chunked("json", first, last[:-1] + error)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server) as caller:
            with pytest.raises(anyio.EndOfStream):
                await broken_off(caller)
            assert len(reads(server)) == 1


async def broken_off(caller: Caller) -> None:
    """Read the resource.

    Raises:
        EndOfStream: The response is not complete.
    """
    reader, writer = await connected(caller)
    writer.write(read_request("1.1"))
    received = await reader.read()
    writer.close()
    if LAST_CHUNK not in received:
        raise anyio.EndOfStream


async def test_a_number_in_what_follows_contents_that_is_too_large_is_written_as_null() -> None:
    def answer(asked: Request) -> Any:
        first, last = text_of(asked, is_first=False)
        return chunked("json", first, last.replace(b'"mine": 1', b'"mine": 1e999'))

    def refused(constant: str) -> Any:
        raise AssertionError(constant)

    async with serving(MODERN, answer) as server, callers(server) as caller, caller.reading() as response:
        result = json.loads(await response.aread(), parse_constant=refused)["result"]
        assert result["_meta"]["mine"] is None


async def test_a_number_before_contents_that_no_parser_reads_is_an_error() -> None:
    def answer(asked: Request) -> Any:
        first, last = text_of(asked)
        return chunked("json", b'{"x":%b,' % (b"9" * 5000) + first[1:], last)

    async with serving(MODERN, answer) as server, callers(server) as caller:
        assert "out of range" in (await caller.answer())["error"]["message"]


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("width", [1, 7, 4096])
async def test_an_event_of_several_lines_is_passed_on_whole(newline: bytes, width: int) -> None:
    def answer(asked: Request) -> Any:
        first, last = text_of(asked, is_first=False)
        lines = [b"data", b"data:", last[:-1].replace(b", ", b"," + newline + b"data: "), b"x: }", b"data:}", b"id: 9"]
        ending = newline.join([lines[2], *lines[:2], *lines[3:], b"", b"data: next", b"", b""])
        start = len(PART)
        tail = [ending[at : at + width] for at in range(start, len(ending), width)]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        parts = [b"id: 1\ndata: " + first, ending[:start], *tail]
        return [head, *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]

    with anyio.fail_after(DEADLINE_SECONDS):
        async with serving(MODERN, answer) as server, callers(server) as caller:
            (item,) = (await caller.answer())["result"]["contents"]
    assert item["blob"] == (PART * 2).decode()

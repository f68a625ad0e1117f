"""Connections to one origin: responses with a known head, and responses that only resemble them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import httptools
import httpx2
import pytest

from bridge.client.transports.http_connections import HttpConnections
from tests.client.raw_http import http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from bridge.client.transports.http_responses import HttpResponse

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Data that was parsed."""
    found: list[bytes] = []

    class Parser(httptools.HttpResponseParser):
        def feed_data(self, data: Any) -> None:
            found.append(data)
            super().feed_data(data)

    monkeypatch.setattr(httptools, "HttpResponseParser", Parser)
    return found


def response(body: bytes, **headers: str) -> bytes:
    return http(200, body, Content_Type="application/json", **headers)


class Server:
    """Answers each request in the given pieces; None closes the connection."""

    def __init__(self, *answers: Iterable[bytes | None]) -> None:
        self._answers = list(answers)
        self._connections: list[asyncio.Task[None]] = []
        self.has_lost = asyncio.Event()
        """Set once a connection is closed."""

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[HttpConnections]:
        """Open connections to the server."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        connections = HttpConnections("127.0.0.1", server.sockets[0].getsockname()[1], None, DEADLINE_SECONDS)
        with anyio.fail_after(DEADLINE_SECONDS):
            try:
                yield connections
            finally:
                connections.close()
                server.close()
                await asyncio.gather(*self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1):
                for piece in self._answers.pop(0):
                    if piece is None:
                        break
                    writer.write(piece)
                    for _ in range(3):  # turns of the loop in which the client receives the piece
                        await asyncio.sleep(0)
                else:
                    continue
                break
        self.has_lost.set()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def answering(*answers: Iterable[bytes | None]) -> AbstractAsyncContextManager[HttpConnections]:
    return Server(*answers).connections()


async def bodies(connections: HttpConnections, number: int) -> list[Any]:
    return [(await sent(connections)).content for _ in range(number)]


async def sent(connections: HttpConnections) -> HttpResponse:
    answer: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
    (connections.idle() or await connections.open()).send(b"x", answer)
    return await answer


async def test_a_head_is_parsed_once(parsed: list[bytes]) -> None:
    answers = [response(b"1"), response(b"2"), response(b"3", Date="later"), response(b"44"), response(b"5")]
    async with answering(*([each] for each in answers)) as connections:
        assert await bodies(connections, 5) == [b"1", b"2", b"3", b"44", b"5"]
    assert parsed == [answers[0], *answers[2:4]]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([response(b"22")[:-2], b"2", b"2"], id="in pieces"),
        pytest.param([response(b"22")[:9], response(b"22")[9:]], id="split in its head"),
        pytest.param([http(103, b"") + response(b"22")], id="behind an interim response"),
        pytest.param([http(103, b"")[:-1], b"\n" + response(b"22")], id="behind a split interim response"),
        pytest.param([b"\r\n" + response(b"22")], id="behind an empty line"),
    ],
)
async def test_a_known_head_that_comes_otherwise_is_parsed(pieces: list[bytes]) -> None:
    async with answering([response(b"11")], pieces, [response(b"33")]) as connections:
        assert await bodies(connections, 3) == [b"11", b"22", b"33"]


@pytest.mark.parametrize("first", [response(b"1", Connection="close"), response(b"1").replace(b"1.1", b"1.0", 1)])
async def test_a_head_that_closes_its_connection_is_not_remembered(first: bytes, parsed: list[bytes]) -> None:
    async with answering([first], [first]) as connections:
        assert await bodies(connections, 2) == [b"1", b"1"]
    assert parsed == [first, first]


async def test_a_known_head_with_half_a_body_is_no_response() -> None:
    async with answering([response(b"11")], [response(b"22")[:-1], None]) as connections:
        assert await bodies(connections, 1) == [b"11"]
        with pytest.raises(httpx2.RemoteProtocolError, match="before the end of its response"):
            await sent(connections)


async def test_a_second_response_with_a_known_head_closes_the_connection() -> None:
    server = Server([response(b"11")], [response(b"22"), response(b"33")], [response(b"44")])
    async with server.connections() as connections:
        assert await bodies(connections, 2) == [b"11", b"22"]
        await server.has_lost.wait()
        assert await bodies(connections, 1) == [b"44"]


async def test_only_some_heads_are_remembered(parsed: list[bytes]) -> None:
    answers = [response(b"1", Date=str(number % 40)) for number in range(80)]
    long = response(b"1", X="x" * 5000)
    async with answering(*([each] for each in [*answers, long, long])) as connections:
        assert await bodies(connections, 82) == [b"1"] * 82
        assert len(connections._known_heads) <= 16  # the bound
    assert parsed[-2:] == [long, long]

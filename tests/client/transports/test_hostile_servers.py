"""Servers with arbitrary responses: programs that call them get no traceback of the SDK in their logs."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import HttpTransport, McpToolProvider, ServerConfig, StdioTransport
from bridge.client.transports.http_link import MAX_POSTING
from bridge.errors import BridgeError, ServerAnswerError, ServerRefusedError
from tests.client import raw_http
from tests.client.conftest import DEADLINE_SECONDS, forked
from tests.client.http_client import sent_by
from tests.client.raw_http import MODERN, RawServer, Request, http, json_of, opened, raw_server
from tests.fuzz.client import AT_ONCE, RECONNECT
from tests.fuzz.hostile import Hostile, HttpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.client.raw_http import Answer

pytestmark = pytest.mark.anyio

CALLS = 150


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # plain requests and the hostile server need it


@asynccontextmanager
async def hostile(kind: str, era: str, flag: Path) -> AsyncIterator[StdioTransport | HttpTransport]:
    """Run a hostile server, which behaves well while the file exists."""
    if kind == "stdio":
        yield forked("-m", "tests.fuzz.hostile", "stdio", era, str(flag))
        return
    http = HttpServer(Hostile(era, flag), "" if era == "modern" else "session")
    server = await asyncio.start_server(http.serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        path = "sse" if kind == "sse" else "mcp"
        yield HttpTransport(f"http://127.0.0.1:{port}/{path}", kind="sse" if kind == "sse" else "http")
    finally:
        server.close()


async def call_all(kind: str, era: str, flag: Path) -> None:
    """Make calls with these seeds, each answered in another way."""
    flag.touch()  # noqa: ASYNC240 - at once
    async with hostile(kind, era, flag) as transport:
        config = ServerConfig(
            name="hostile",
            transport=transport,
            protocol="2026-07-28" if era == "modern" else "legacy",
            timeout_seconds=0.3,
            max_call_seconds=0.6,
            trusted=True,
        )
        if kind == "http by the client":
            config = sent_by(config, own=False)
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with McpToolProvider([config], reconnect=RECONNECT, prefix="never") as provider:
            flag.unlink()  # noqa: ASYNC240 - at once

            async def call(seed: int) -> None:
                async with limit:
                    with suppress(BridgeError):
                        await provider.connections["hostile"].call_tool("fuzz", {"seed": seed})

            async with anyio.create_task_group() as tasks:
                for seed in range(CALLS):
                    tasks.start_soon(call, seed)


@pytest.mark.parametrize(
    ("kind", "era"),
    [
        ("http", "modern"),
        ("http", "handshake"),
        ("http by the client", "modern"),
        ("http by the client", "handshake"),
        ("sse", "handshake"),
        ("stdio", "modern"),
        ("stdio", "handshake"),
    ],
    ids=str,
)
async def test_nothing_that_a_server_sends_logs_a_traceback(
    kind: str, era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with anyio.fail_after(DEADLINE_SECONDS):
        await call_all(kind, era, tmp_path / "flag")
    assert [(each.name, each.getMessage(), each.exc_info) for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_header_that_is_not_ascii_fails_no_differently(era: str) -> None:
    answer = http(200, b"[]", Content_Type="application/json", X_Odd="se\u00edsion")
    async with raw_server(era, lambda _: [answer]) as server, opened(sent_by(server.config(), own=False)) as connection:
        with pytest.raises(ServerRefusedError, match="parse JSON response"):
            await connection.call_tool("add", {})


@pytest.mark.parametrize("own", [True, False])
async def test_a_list_that_is_no_list_fails_the_call_that_needs_it(own: bool) -> None:
    """After -32020 the tools are listed again, for the headers that they declare."""

    def answer(request: Request) -> list[bytes | None]:
        error = {"jsonrpc": "2.0", "id": request.call_id, "error": {"code": -32020, "message": "a header is missing"}}
        return [http(400, json.dumps(error).encode(), Content_Type="application/json")]

    async with raw_server(MODERN, answer) as server, opened(sent_by(server.config(), own=own)) as connection:
        with pytest.raises(ServerAnswerError, match="not valid MCP"):
            await connection.call_tool("add", {})


class SlowServer(RawServer):
    """A server that does not read on after an answer to a request of its own, until it is released."""

    def __init__(self, era: str, answer: Answer, **options: Any) -> None:
        super().__init__(era, answer, **options)
        self.waiting = 0
        self.is_released = asyncio.Event()
        self.has_many = asyncio.Event()

    def _pieces(self, request: Request) -> Sequence[bytes | asyncio.Event | None]:
        if request.method == "POST" and "result" in request.message and not self.is_released.is_set():
            self.waiting += 1
            if self.waiting == MAX_POSTING:
                self.has_many.set()
            return [self.is_released, http(202, b"")]
        return super()._pieces(request)


async def test_a_server_that_asks_much_gets_its_answers_over_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_http, "RawServer", SlowServer)
    pings = b"".join(b'data: {"jsonrpc": "2.0", "id": "p%d", "method": "ping"}\n\n' % number for number in range(300))

    def answer(request: Request) -> list[bytes | None]:
        if request.message["params"]["name"] == "add":
            return [json_of(request.call_id, {"content": []})]
        result = json.dumps({"jsonrpc": "2.0", "id": request.call_id, "result": {"content": []}}).encode()
        return [http(200, pings + b"data: %b\n\n" % result, Content_Type="text/event-stream")]

    with anyio.fail_after(DEADLINE_SECONDS):
        async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
            assert isinstance(server, SlowServer)
            await connection.call_tool("ping", {})
            await server.has_many.wait()
            for _ in range(50):
                await connection.call_tool("add", {})
            assert server.waiting == MAX_POSTING
            server.is_released.set()

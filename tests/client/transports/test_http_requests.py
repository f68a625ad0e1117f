"""Requests over HTTP: own connections and the HTTP client send the same."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import tracemalloc
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bridge.client.connection.running_call import CallOptions
from bridge.client.transports.received_data import default_ssl_context
from bridge.errors import BridgeError, ServerUnavailableError
from bridge.tools.context import InvocationContext
from tests.client.http_client import sent_by
from tests.client.raw_http import (
    DONE,
    MODERN,
    Heard,
    Request,
    event,
    http,
    json_of,
    opened,
    progress,
    raw_server,
    response,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.types import Json


pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # own connections need it


@ERAS
@pytest.mark.parametrize("name", ["add", "größe 1", "100 %d"])
@pytest.mark.parametrize("meta", [None, {"x/y": 1}])
async def test_a_request_over_an_own_connection_is_that_of_the_http_client(
    era: str, name: str, meta: dict[str, int] | None
) -> None:
    async with raw_server(era, lambda request: [json_of(request.call_id, DONE)]) as server:
        for is_own in (True, False):
            async with opened(sent_by(server.config(), own=is_own)) as connection:
                await connection.call_tool(name, {"a": None, "b": [1.5, "ü", "%d"]}, options=CallOptions(meta=meta))
        own, usual = server.calls
    assert own.token == own.call_id
    for each in (own, usual):
        del each.message["id"], each.message["params"]["_meta"]["progressToken"], each.headers["content-length"]
    assert own.message == usual.message
    assert own.headers == usual.headers


@ERAS
async def test_connections_are_reused(era: str) -> None:
    async with (
        raw_server(era, lambda request: [json_of(request.call_id, DONE)]) as server,
        opened(server.config()) as connection,
    ):
        for _ in range(6):
            await connection.call_tool("add", {})
        assert len({each.connection for each in server.calls}) == 1
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(connection.call_tool, "add", {})
        assert len({each.connection for each in server.calls}) <= 4


async def test_a_closed_connection_is_not_reused() -> None:
    def answer(request: Request) -> list[bytes | None]:
        body = json.dumps(response(request.call_id, {"content": []})).encode()
        return [http(200, body, Content_Type="application/json", Connection="close"), None]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
        for _ in range(3):
            assert await connection.call_tool("add", {}) == {"content": []}


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """TLS settings of a server for localhost, whose certificate this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "localhost.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    default_ssl_context.cache_clear()
    yield context
    default_ssl_context.cache_clear()


async def test_a_server_behind_tls_is_called_and_its_certificate_is_checked(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(MODERN, lambda request: [json_of(request.call_id, DONE)], tls=tls) as server:
        async with opened(server.config()) as connection:
            assert (await connection.call_tool("add", {}))["content"] == DONE["content"]
        default_ssl_context.cache_clear()
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises(ServerUnavailableError, match="TLS"):
            async with opened(server.config()):
                pass


@ERAS
@pytest.mark.parametrize("has_logged", [False, True])
async def test_a_cancelled_call_is_cancelled_at_the_server(era: str, has_logged: bool) -> None:
    arrived, heard = anyio.Event(), Heard()

    def answer(request: Request) -> list[bytes | None]:
        arrived.set()
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
        return [stream(event(log))[0], b"%x\r\n%b\r\n" % (len(event(log)), event(log))] if has_logged else [b""]

    async with raw_server(era, answer) as server, opened(server.config()) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: connection.call_tool("add", {}, context=InvocationContext(channel=heard)))
            await arrived.wait()
            if has_logged:
                await heard.has_logged.wait()
            tasks.cancel_scope.cancel()
        await connection.request("ping")
        (call,) = server.calls
        if era != MODERN:
            while True:
                told = [each for each in server.requests if each.message.get("method") == "notifications/cancelled"]
                if told:
                    break
                await anyio.lowlevel.checkpoint()
            assert told[0].message["params"]["requestId"] == call.call_id


async def test_a_call_cancelled_after_its_progress_closes_its_connection() -> None:
    heard, calling = Heard(), anyio.Event()

    def answer(request: Request) -> list[bytes | None]:
        calling.set()
        return stream(event(progress(request.token, 1)), b"")[:-1]

    async with raw_server(MODERN, answer) as server, opened(server.config()) as connection:
        await connection.request("ping")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: connection.call_tool("add", {}, context=InvocationContext(channel=heard)))
            await calling.wait()
            while not heard.progressed:
                await anyio.lowlevel.checkpoint()
            open_before = server.open
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            while server.open == open_before:
                await anyio.lowlevel.checkpoint()
        await connection.request("ping")
    assert server.calls[0].connection != server.requests[-1].connection


async def test_a_call_cancelled_while_it_has_logged_runs_once_and_keeps_its_session() -> None:
    steps, arrived = range(30), anyio.Event()

    def answer(request: Request) -> list[bytes | None]:
        arrived.set()
        return [http(500, b"")]

    async with raw_server("legacy", answer) as server, opened(server.config()) as connection:

        async def call() -> None:
            with suppress(BridgeError):
                await connection.call_tool("add", {})

        for step in steps:
            arrived = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await arrived.wait()
                for _ in range(step):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            await connection.request("ping")
    methods = Counter(each.message.get("method") for each in server.requests)
    assert methods["tools/call"] == len(steps)
    assert methods["initialize"] == 1


async def test_capabilities_of_callers_are_not_kept_after_their_calls() -> None:
    async with (
        raw_server(MODERN, lambda request: [json_of(request.call_id, DONE)]) as server,
        opened(server.config()) as connection,
    ):

        async def call(number: int) -> None:
            capabilities = {"elicitation": {f"{number}": "x" * 256 * 1024}}
            await connection.call_tool("add", {}, options=CallOptions(capabilities=capabilities))
            del server.requests[:]

        await call(0)
        tracemalloc.start()
        try:
            for number in range(1, 20):
                await call(number)
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 2 * 2**20


async def test_a_number_in_capabilities_that_is_too_large_is_written_as_null() -> None:
    async with (
        raw_server(MODERN, lambda request: [json_of(request.call_id, DONE)]) as server,
        opened(server.config()) as connection,
    ):
        await connection.call_tool("add", {}, options=CallOptions(capabilities={"elicitation": {"x": math.inf}}))
        (asked,) = server.calls
    declared = asked.message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert declared == {"elicitation": {"x": None}}


def test_progress_and_requests_of_the_server_arrive_in_a_program_run_by_asyncio(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Unlike `anyio.run`, it does not tell sniffio of its event loop, which anyio asks outside of tasks."""
    heard = Heard()

    def answer(request: Request) -> list[bytes | None]:
        asked = {"jsonrpc": "2.0", "id": "q", "method": "ping"}
        messages = [progress(request.token, 1), asked, response(request.call_id, DONE)]
        return stream(*map(event, messages))

    async def call() -> Json:
        async with raw_server("legacy", answer) as server, opened(server.config()) as connection:
            return await connection.call_tool("add", {}, context=InvocationContext(channel=heard))

    assert asyncio.run(call())["content"] == DONE["content"]
    assert heard.progressed == [(1, 2, "on")]
    assert caplog.records == []

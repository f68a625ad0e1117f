"""Bounds of what is read from a server over HTTP."""

from __future__ import annotations

import gzip
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from starlette.responses import Response, StreamingResponse

from bridge import tool
from bridge.client import HttpTransport, ServerConfig
from bridge.client.transports import http, opening
from bridge.errors import OutcomeUnknownError, ServerAnswerError, ServerRefusedError
from bridge.server.http.app import http_app
from tests.client.conftest import DEADLINE_SECONDS, opened
from tests.client.endpoint import MODERN, endpoint, result_of
from tests.client.transports.test_http import ERAS
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bridge.types import Json

pytestmark = pytest.mark.anyio

# --- what is too long ------------------------------------------------------------------------------------------------


def flood(
    chunk: bytes, media_type: str, headers: dict[str, str] | None = None
) -> Callable[[Json], Awaitable[Response]]:
    """Answer with much more than is read."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield chunk
            await anyio.lowlevel.checkpoint()

    async def answer(_message: Json) -> Response:
        return StreamingResponse(chunks(), media_type=media_type, headers=headers)

    return answer


@ERAS
@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_an_answer_that_is_too_long_is_read_up_to_the_limit(
    era: str, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_MESSAGE_BYTES", 2**20)
    chunk, headers = b"[" * 2**16, None
    if encoding is not None:
        chunk, headers = gzip.compress(b"[" * 2**26), {"content-encoding": encoding}
    with endpoint(era, pay=flood(chunk, "application/json", headers)) as server:
        async with opened(server.config(trusted=True)) as connection:
            with pytest.raises(ServerAnswerError, match="its answer is longer than 1 MiB"):
                await connection.call_tool("pay", {}, repeatable=True)
            assert (await connection.list_tools()).tools
        assert server.seen.count("pay") == 1, "a long answer is not asked for again"


async def test_an_answer_in_an_encoding_that_was_not_asked_for_is_not_decoded() -> None:
    refused = flood(b"x", "application/json", {"content-encoding": "gzip, gzip"})
    with endpoint(pay=refused) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(OutcomeUnknownError, match="'gzip, gzip', which was not asked for"):
                await connection.call_tool("pay", {})


@ERAS
async def test_an_event_that_is_too_long_is_read_up_to_the_limit(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MAX_MESSAGE_BYTES", 2**20)
    with endpoint(era, pay=flood(b"data: " + b"x" * 2**16 + b"\n", "text/event-stream")) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerRefusedError, match="exceeded the 1048576 byte limit"):
                await connection.call_tool("pay", {})
            assert (await connection.list_tools()).tools


@pytest.mark.parametrize("kind", ["legacy", MODERN, "sse"])
async def test_a_result_of_two_mebibytes_arrives_and_ends_no_other_call(kind: str) -> None:
    @tool
    async def long() -> str:
        """Answer two mebibytes."""
        return "x" * 2**21

    has_come = threading.Event()
    answers: list[int] = []

    @tool
    def blocking() -> str:
        """Answer once the other call has been answered."""
        assert has_come.wait(DEADLINE_SECONDS)
        return "done"

    with http_server.serving(http_app([long, blocking], name="long")) as origin:
        at = HttpTransport(f"{origin}/{'sse' if kind == 'sse' else 'mcp'}", kind="sse" if kind == "sse" else "http")
        pin: Any = "legacy" if kind == "sse" else kind
        async with opened(ServerConfig(name="long", transport=at, protocol=pin)) as connection:

            async def call(name: str) -> None:
                answers.append(len((await connection.call_tool(name, {}))["content"][0]["text"]))
                has_come.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "blocking")
                tasks.start_soon(call, "long")
    assert answers == [2**21, 4]


@ERAS
async def test_a_long_result_arrives_as_it_came(era: str) -> None:
    result = {"content": [{"type": "text", "text": "x" * 2**19}], "own": {"a": [1, None, {"b": 2.5}]}}

    async def pay(message: Json) -> Response:
        return result_of(message, result)

    with endpoint(era, pay=pay) as server:
        async with opened(server.config()) as connection:
            answer = await connection.call_tool("pay", {})
    assert {key: answer[key] for key in result} == result


@ERAS
async def test_a_result_of_too_many_values_is_not_parsed(era: str) -> None:
    async def pay(_message: Json) -> Response:
        return Response(
            b'{"jsonrpc": "2.0", "id": 1, "result": {"x": [' + b"[]," * 2_000_001, media_type="application/json"
        )

    with endpoint(era, pay=pay) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerAnswerError, match="objects and arrays, of 2,000,000 at most"):
                await connection.call_tool("pay", {})
            assert (await connection.list_tools()).tools

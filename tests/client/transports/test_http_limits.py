"""Limits of responses over HTTP."""

from __future__ import annotations

import gzip
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from starlette.responses import Response, StreamingResponse

from bridge import InvocationContext, tool
from bridge.client import CallOptions, HttpTransport, ServerConfig
from bridge.client.transports import http_client, http_connections, http_exchange, received_data, streamable_http
from bridge.errors import OutcomeUnknownError, ServerAnswerError, ServerRefusedError
from bridge.server.http.app import http_app
from bridge.server.server import Server
from bridge.tools.channel import LocalChannel
from bridge.types import ValueBounds
from tests.client.conftest import DEADLINE_SECONDS, opened
from tests.client.endpoint import MODERN, endpoint, error_of, result_of
from tests.client.transports.test_http_client import ERAS
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bridge.tools.channel import LogLevel
    from bridge.types import Json

pytestmark = pytest.mark.anyio

pytestmark = pytest.mark.anyio


def as_json(text: bytes) -> Response:
    return Response(text, media_type="application/json")


def as_event(text: bytes) -> Response:
    return Response(b": first\r\n\r\nid: \r\ndata: " + text + b"\r\n\r\n", media_type="text/event-stream")


def as_event_of_lines(text: bytes) -> Response:
    data = b"\n".join(b"data:" + line for line in text.replace(b",", b",\n", 1000).split(b"\n"))
    return Response(data + b"\n\n", media_type="text/event-stream")


FORMS = pytest.mark.parametrize("form", [as_json, as_event, as_event_of_lines])


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
    for module in (http_client, http_connections, streamable_http):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 2**20)
    chunk, headers = b"[" * 2**16, None
    if encoding is not None:
        chunk, headers = gzip.compress(b"[" * 2**26), {"content-encoding": encoding}
    with endpoint(era, pay=flood(chunk, "application/json", headers)) as server:
        async with opened(server.config(trusted=True)) as connection:
            with pytest.raises(ServerAnswerError, match="its answer is longer than 1 MiB"):
                await connection.call_tool("pay", {}, options=CallOptions(repeatable=True))
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
    monkeypatch.setattr(http_exchange, "MAX_MESSAGE_BYTES", 2**20)
    chunk = b"id: 1\ndata: " + b"x" * 2**16 + b"\n"
    with endpoint(era, pay=flood(chunk, "text/event-stream")) as server:
        async with opened(server.config(trusted=True)) as connection:
            with pytest.raises(ServerAnswerError, match="an event of its answer is longer than 1 MiB"):
                await connection.call_tool("pay", {}, options=CallOptions(repeatable=True))
            assert (await connection.list_tools()).tools
        assert server.seen.count("pay") == 1, "a long answer is not asked for again"


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

    with http_server.serving(http_app(Server([long, blocking], name="long"))) as origin:
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
@FORMS
async def test_a_long_result_arrives_as_it_came_and_is_parsed_once(
    era: str, form: Callable[[bytes], Response], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {"content": [{"type": "text", "text": "x" * 2**19}], "own": {"a": [1, None, {"b": 2.5}]}}
    parsed: list[int] = []

    async def pay(message: Json) -> Response:
        return form(bytes(result_of(message, result).body))

    large_json = received_data.large_json

    def parse(text: bytes, **options: Any) -> Any:
        parsed.append(len(text))
        return large_json(text, **options)

    monkeypatch.setattr(received_data, "large_json", parse)
    with endpoint(era, pay=pay) as server:
        async with opened(server.config()) as connection:
            answer = await connection.call_tool("pay", {})
    assert {key: answer[key] for key in result} == result
    assert len(parsed) == 1


@ERAS
@FORMS
async def test_a_long_error_arrives_as_it_came(era: str, form: Callable[[bytes], Response]) -> None:
    async def pay(message: Json) -> Response:
        return form(bytes(error_of(message["id"], -32000, "so " + "x" * 2**19).body))

    with endpoint(era, pay=pay) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerRefusedError) as caught:
                await connection.call_tool("pay", {})
    assert caught.value.code == -32000
    assert caught.value.args[0].startswith("server 'remote', calling 'pay': so xxx")


@ERAS
@FORMS
async def test_a_result_of_too_many_values_is_not_parsed(era: str, form: Callable[[bytes], Response]) -> None:
    async def pay(_message: Json) -> Response:
        return form(b'{"jsonrpc": "2.0", "id": 1, "result": {"x": [' + b"[]," * 500_001)

    with endpoint(era, pay=pay) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerAnswerError, match="objects and arrays, of 500,000 at most"):
                await connection.call_tool("pay", {})
            assert (await connection.list_tools()).tools


async def test_an_event_of_too_many_values_over_sse_ends_the_connection_and_the_error_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool
    async def many() -> list[list[int]]:
        """Answer many lists."""
        return [[]] * 2**11

    monkeypatch.setattr(received_data, "_COLLECTED_BYTES", 2**10)
    monkeypatch.setattr(received_data, "BOUNDS", ValueBounds(containers=2**10, entries=2**20))
    with http_server.serving(http_app(Server([many], name="many"))) as origin:
        over_sse = HttpTransport(f"{origin}/sse", kind="sse")
        async with opened(ServerConfig(name="many", transport=over_sse)) as connection:
            with pytest.raises(OutcomeUnknownError, match="objects and arrays, of 1,024 at most"):
                await connection.call_tool("many", {})


@pytest.mark.parametrize("kind", ["legacy", "sse"])
async def test_a_long_notification_arrives_as_it_came(kind: str) -> None:
    @tool
    async def tell(context: InvocationContext) -> str:
        """Tell much."""
        await context.log("info", "x" * 2**19)
        return "told"

    came: list[int] = []

    class Listening(LocalChannel):
        async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
            came.append(len(data))

    with http_server.serving(http_app(Server([tell], name="long"))) as origin:
        at = HttpTransport(f"{origin}/{'sse' if kind == 'sse' else 'mcp'}", kind="sse" if kind == "sse" else "http")
        async with opened(ServerConfig(name="long", transport=at, protocol="legacy")) as connection:
            await connection.call_tool("tell", {}, context=InvocationContext(channel=Listening()))
    assert came == [2**19]

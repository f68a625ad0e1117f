"""Real requests, spoiled by the thousand, against one running server over raw sockets, with both HTTP parsers."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import h11
import pytest

from tests import processes
from tests.server.http_mutations import (
    Attempt,
    Draft,
    Sessions,
    attempt,
    handshake,
    initialize,
    modern,
    post,
    request,
    without_body,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.abc import SocketStream

SEED = 20260728
ATTEMPTS = 2500
ATTEMPTS_A_SESSION = 250
AT_ONCE = 16
DEADLINE_SECONDS = 60
GOOD_CALL = {"name": "add", "arguments": {"a": 40, "b": 2}}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


class Connection:
    """One request and its answer, over a socket of their own."""

    def __init__(self, stream: SocketStream, method: str) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())

    async def head(self) -> h11.Response | None:
        """The answer's head; None where the server closed without one."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.ConnectionClosed):
                return None

    async def body(self) -> bytes:
        """The answer's body, whole."""
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """The answer's body, as it comes."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self._stream.receive())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                if self._http.their_state is h11.SEND_RESPONSE:
                    return h11.ConnectionClosed()
                self._http.receive_data(b"")
        return event


@asynccontextmanager
async def sent(port: int, raw: bytes, method: str = "POST", *, is_whole: bool = True) -> AsyncIterator[Connection]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        try:
            await stream.send(raw)
            if not is_whole:
                await stream.send_eof()
        except (anyio.BrokenResourceError, OSError):
            pass  # the server may have answered and gone before it had read all
        yield Connection(stream, method)


async def answer_to(port: int, made: Attempt) -> Answer | None:
    async with sent(port, made.raw, made.method, is_whole=made.must_be_answered) as connection:
        head = await connection.head()
        if head is None:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        return Answer(head.status_code, headers, b"" if is_stream else await connection.body())


def problem_with(made: Attempt, answer: Answer | None) -> str | None:
    """What is wrong with an answer; None for nothing."""
    if answer is None:
        return "no answer" if made.must_be_answered else None
    if not (200 <= answer.status < 300 or 400 <= answer.status < 500):
        return "the wrong class of status"
    if (made.must_be_taken and answer.status >= 300) or (made.must_be_refused and answer.status < 400):
        return "the wrong verdict"
    if answer.kind != "application/json" or made.method == "HEAD" or (answer.status < 300 and not answer.body):
        return None
    return problem_with_json(answer)


def problem_with_json(answer: Answer) -> str | None:
    message = json.loads(answer.body)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or type(message.get("id")) is bool:
        return "not a JSON-RPC message"
    if ("result" in message) is ("error" in message) or ("error" not in message and answer.status >= 400):
        return "not an answer of that status"
    error = message.get("error", {"code": 0, "message": ""})
    if type(error["code"]) is not int or not isinstance(error["message"], str):
        return "a malformed error"
    return None


async def event_of(connection: Connection, pattern: bytes) -> bytes:
    """What a pattern finds in the events of a stream; they go on."""
    text = b""
    async for part in connection.parts():
        text += part
        if found := re.search(pattern, text):
            return found[1]
    raise AssertionError(f"the stream ended without {pattern!r}: {text[-500:]!r}")


async def open_session(port: int) -> str:
    async with sent(port, initialize().raw) as connection:
        head = await connection.head()
        assert head is not None
        session_id = dict(head.headers)[b"mcp-session-id"].decode()
    await taken(
        port, handshake(Sessions(session_id, "", ""), {"jsonrpc": "2.0", "method": "notifications/initialized"})
    )
    return session_id


async def taken(port: int, draft: Draft) -> bytes:
    """Send a good request; gives the answer's body."""
    async with sent(port, draft.raw, draft.method) as connection:
        head = await connection.head()
        assert head is not None
        assert 200 <= head.status_code < 300
        return await connection.body()


async def fuzz(port: int, messages_target: str) -> list[str]:
    """All attempts, many at once; gives what went wrong."""
    problems: list[str] = []
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int, sessions: Sessions) -> None:
        made = attempt(Random(SEED + number), sessions)
        async with limit:
            try:
                with anyio.fail_after(DEADLINE_SECONDS):
                    answer = await answer_to(port, made)
                problem = problem_with(made, answer)
            except (TimeoutError, h11.ProtocolError, ValueError) as error:
                answer, problem = None, repr(error)
        if problem:
            problems.append(f"attempt {number}: {problem}: {answer} to {made.raw[:1000]!r}")

    for first in range(0, ATTEMPTS, ATTEMPTS_A_SESSION):
        sessions = Sessions(await open_session(port), await open_session(port), messages_target)
        async with anyio.create_task_group() as tasks:
            for number in range(first, first + ATTEMPTS_A_SESSION):
                tasks.start_soon(one, number, sessions)
    return problems


@pytest.fixture(params=["h11", "httptools"])
def server(request: pytest.FixtureRequest) -> Iterator[processes.ServerProcess]:
    with processes.serving(str(Path(__file__).with_name("fuzzed_server.py")), "--http", request.param) as server:
        yield server


@pytest.mark.anyio
async def test_a_server_that_gets_thousands_of_spoiled_requests_answers_each_and_goes_on(
    server: processes.ServerProcess,
) -> None:
    port = int(server.origin.rpartition(":")[2])
    with anyio.fail_after(2 * DEADLINE_SECONDS):
        async with sent(port, without_body("GET", "/sse").raw, "GET") as news:
            await news.head()
            target = (await event_of(news, rb"data: (/messages/\S+)\r?\n")).decode()
            await taken(port, post(target, initialize_message()))
            await taken(port, post(target, {"jsonrpc": "2.0", "method": "notifications/initialized"}))
            async with anyio.create_task_group() as tasks:
                good = anyio.Event()

                async def hear() -> None:
                    assert await event_of(news, rb'("id":"the last".*"text":"42")')
                    good.set()

                tasks.start_soon(hear)
                problems = await fuzz(port, target)
                await taken(port, post(target, request("tools/call", **GOOD_CALL) | {"id": "the last"}))
                await good.wait()
        assert b'"text":"42"' in await taken(port, modern("tools/call", **GOOD_CALL))
        session = Sessions(await open_session(port), "", "")
        assert b'"text":"42"' in await taken(port, handshake(session, request("tools/call", **GOOD_CALL)))
    assert not problems, "\n".join(problems)
    assert server.process.poll() is None
    server.process.terminate()
    assert not re.search(r"^(?:ERROR|CRITICAL|Traceback)", server.log, re.MULTILINE), server.log


def initialize_message() -> Any:
    return json.loads(initialize().body)

"""Thousands of malformed requests against one running server over raw sockets, with both HTTP parsers."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import h11
import pytest
from hypothesis import settings

from bridge.hosting.http.limits import ConnectionLimits
from tests import processes
from tests.cli import bounding
from tests.server.http_answers import answer_to, problem_with
from tests.server.http_mutations import (
    HANDSHAKE,
    Sessions,
    attempt,
    handshake,
    initialize,
    modern,
    post,
    request,
    without_body,
)
from tests.server.raw_http import event_of, open_session, sent, taken

if TYPE_CHECKING:
    from collections.abc import Iterator


SEED = 20260728
ATTEMPTS = 25 * settings().max_examples
ATTEMPTS_A_SESSION = 250
AT_ONCE = 16
DEADLINE_SECONDS = 60
GOOD_CALL = {"name": "add", "arguments": {"a": 40, "b": 2}}


async def fuzz(port: int, messages_target: str) -> list[str]:
    """Make all attempts, many at once; return the problems."""
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
            await taken(port, post(target, json.loads(initialize().body)))
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


OF_CONNECTIONS = {"ServedConnection", "AsgiRequest", "Reply"}
OF_SESSIONS = {"HttpSession", "ServedExchange", "SessionNotifications", "MemoryEvents"}


def held() -> Counter[str]:
    """Return the connections and sessions of this process."""
    gc.collect()
    return Counter(kind for each in gc.get_objects() if (kind := type(each).__name__) in OF_CONNECTIONS | OF_SESSIONS)


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["h11", "direct"])
async def test_spoiled_requests_leave_nothing_behind_once_their_sessions_are_closed(protocol: str) -> None:
    opened: set[str] = set()
    before = held()
    with bounding.served(protocol, ConnectionLimits()) as port, anyio.fail_after(DEADLINE_SECONDS):

        async def one(number: int, sessions: Sessions) -> None:
            made = attempt(Random(SEED + number), sessions)
            with suppress(h11.ProtocolError, ValueError):
                answer = await answer_to(port, made)
                if answer is not None and "mcp-session-id" in answer.headers:
                    opened.add(answer.headers["mcp-session-id"])

        sessions = Sessions(await open_session(port), await open_session(port), "/messages/")
        opened |= {sessions.session_id, sessions.doomed_session_id}
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number, sessions)
        assert held()["HttpSession"] - before["HttpSession"] >= 1  # malformed requests may have ended the other
        for each in opened:
            ending = without_body("DELETE", "/mcp", MCP_Protocol_Version=HANDSHAKE, Mcp_Session_Id=each)
            async with sent(port, ending.raw, "DELETE") as connection:
                await connection.head()
        while held() - before:
            await anyio.lowlevel.checkpoint()

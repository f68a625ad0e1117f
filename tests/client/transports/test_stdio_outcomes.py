"""Outcomes of calls over stdio, whatever the server answers."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client.connection.running_call import CallOptions
from bridge.client.transports import process
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerError,
    ServerRefusedError,
    ServerUnavailableError,
)
from bridge.tools.context import InvocationContext
from tests.client.conftest import opened, python_config
from tests.client.mutated_answers import ASIDES, BODIES, PROGRESS, TEXTS
from tests.client.raw_http import DONE, MODERN, Heard, progress
from tests.server.stdio_mutations import spoil_text, spoil_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client.connection.connection import Connection

pytestmark = pytest.mark.anyio
ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])
ANSWERS = 200
CHILD = """
import json, sys
from base64 import b64decode

seen = []
told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
modern = {"supportedVersions": ["2026-07-28"], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin.buffer:
    message = json.loads(line)
    seen.append(message)
    if "id" not in message or "method" not in message:
        continue
    params = message.get("params") or {}
    arguments = params.get("arguments", {})
    if message["method"] == "tools/call" and "raw" in arguments:
        token = b"%d" % params["_meta"]["progressToken"]
        raw = b64decode(arguments["raw"]).replace(b'"@id"', b"%d" % message["id"]).replace(b'"@token"', token)
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        if arguments.get("is_all"):
            continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", **told}
    elif message["method"] == "server/discover":
        result = {**modern, **told}
    else:
        known = {"seen": seen} if params.get("name") == "seen" else {}
        result = {"content": [], "resultType": "complete", "structuredContent": known}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if arguments.get("stops"):
        import signal
        signal.pause()
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def child(era: str, *, timeout_seconds: float = 30) -> AsyncIterator[Connection]:
    """A connection to a child that answers calls with the bytes in their arguments, then correctly."""
    protocol: Any = era
    config = python_config(CHILD, protocol=protocol, timeout_seconds=timeout_seconds)
    async with opened(config) as connection:
        yield connection


async def seen(connection: Connection) -> list[Any]:
    """The messages that the child has received."""
    messages: list[Any] = (await connection.call_tool("seen", {}))["structuredContent"]["seen"]
    return messages


async def outcome(connection: Connection, raw: bytes, *, is_all: bool = False) -> Any:
    """Outcome of a call with this response, and the notifications that its caller got."""
    heard = Heard()
    try:
        result: Any = await connection.call_tool(
            "add",
            {"raw": b64encode(raw).decode(), "is_all": is_all},
            context=InvocationContext(channel=heard),
            options=CallOptions(hands_on_questions=True),
        )
    except ServerRefusedError as error:
        result = type(error), str(error).partition("\n")[0], error.code, error.data
    except ServerAnswerError as error:
        result = type(error)
    except ServerError as error:
        result = type(error), error.failure.phase
    return result, heard.progressed, heard.logged


def answer(random: Random) -> bytes:
    """Lines that answer a call; most have one or two unusual traits."""

    def rarely(share: float, unusual: Any, usual: Any) -> Any:
        return random.choice(unusual) if random.random() < share else usual

    def line(message: Any) -> bytes:
        if isinstance(message, bytes):
            return message
        separators = random.choice([(",", ":"), None])
        return json.dumps(message, separators=separators, ensure_ascii=random.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )

    def aside(kind: Any) -> bytes:
        if not isinstance(kind, str):
            return line({"jsonrpc": "2.0", **kind})
        return line(progress("else" if kind == "foreign" else "@token", PROGRESS[kind]))

    body = rarely(0.5, [*BODIES, *TEXTS], {"result": DONE})
    spoiled = b""
    if isinstance(body, dict):
        frame = {"jsonrpc": "2.0", "id": "@id"}
        body = deepcopy({**frame, **body} if random.random() < 0.5 else {**body, **frame})
        if random.random() < 0.2:
            spoil_value(random, body)
        spoiled = line(body)
        if random.random() < 0.05:
            spoiled = spoil_text(random, spoiled)
    else:
        spoiled = body
    asides = [aside(kind) for kind in random.choices([*PROGRESS, *ASIDES], k=rarely(0.4, [1, 2], 0))]
    return b"".join(each + random.choice([b"\n", b"\r\n"]) for each in [*asides, spoiled])


FOUND = [
    b'{"jsonrpc":"2.0","id":"@id","result":{"content":[]},"method":"ping"}\n',
    b'{"jsonrpc":"2.0","method":null,"id":"@id","result":{"content":[],"resultType":"complete"}}\n',
    b'{"result":{"content":[],"resultType":"complete"},"jsonrpc":"2.0","id":"@id"}\n',
    b'{"id":'
    + b"9" * 5000
    + b',"jsonrpc":"2.0","result":{}}\n{"error":{"code":1,"message":"m"},"jsonrpc":"2.0","id":"@id"}\n',
    b'{"jsonrpc":"2.0","id":"@id","result":' + b"[" * 300 + b"]" * 300 + b"}\n",
    b'{"jsonrpc":"2.0","id":"@id","result":{"content":[],"resultType":"complete","x":"' + b"x" * 300_000 + b'"}}\n',
    b'{"jsonrpc": "2.0", "id": "@id", "error": {"code": 1, "message": "' + b"x" * 300_000 + b'"}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}\n',
]


@ERAS
async def test_every_answer_has_an_outcome_and_the_next_call_its_own(era: str) -> None:
    """Whatever a line is, the call gets its result or error, or the correct response after it, at once."""
    answers = [*FOUND, *(answer(Random(seed)) for seed in range(ANSWERS))]
    async with child(era) as connection:
        for raw in answers:
            result, _, _ = await outcome(connection, raw)
            kind = result if isinstance(result, type) else result[0] if isinstance(result, tuple) else dict
            assert kind in {dict, ServerAnswerError, ServerRefusedError}, raw[:1000]
        calls = [each for each in await seen(connection) if each.get("method") == "tools/call"]
        assert len(calls) == len(answers) + 1


@ERAS
async def test_a_response_is_found_in_any_form(era: str) -> None:
    async with child(era) as connection:
        outcomes = [(await outcome(connection, raw, is_all=True))[0] for raw in FOUND[1:3]]
        assert outcomes == [{"content": [], "resultType": "complete"}] * 2 if era == MODERN else [{"content": []}] * 2
        refused = (await outcome(connection, FOUND[3], is_all=True))[0]
        assert refused[0] is ServerRefusedError
        assert refused[2] == 1


@ERAS
async def test_a_cancelled_call_is_cancelled_at_the_server_and_its_late_response_is_dropped(era: str) -> None:
    async with child(era) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(outcome, connection, b"", is_all=True))
            while not (calls := [each for each in await seen(connection) if "raw" in str(each)]):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        late = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n' % calls[0]["id"]
        done = b'{"jsonrpc":"2.0","id":"@id","result":{"content":[],"resultType":"complete"}}\n'
        result, _, _ = await outcome(connection, late + done)
        assert "structuredContent" not in result
        told = [each["params"] for each in await seen(connection) if each.get("method") == "notifications/cancelled"]
        assert [each["requestId"] for each in told] == [calls[0]["id"]]


@pytest.mark.slow
async def test_only_one_request_to_a_child_that_does_not_read_may_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "EXIT_GRACE_SECONDS", 0)
    async with child("legacy", timeout_seconds=0.5) as connection:
        await connection.call_tool("stop", {"stops": True})
        kinds = []

        async def call() -> None:
            try:
                await connection.call_tool("add", {"text": "x" * 2**20})
            except ServerError as error:
                kinds.append(type(error))

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(call)
    assert [issubclass(kind, OutcomeUnknownError) for kind in kinds].count(True) == 1
    assert kinds.count(ServerUnavailableError) == 3


async def test_calls_of_a_child_that_ends_fail_at_once() -> None:
    code = CHILD.replace('if arguments.get("stops"):', 'if arguments.get("stops"):\n        sys.exit(3)\n    if False:')
    async with opened(python_config(code, protocol="legacy", timeout_seconds=60)) as connection:
        kinds = []

        async def call(arguments: dict[str, Any]) -> None:
            try:
                await connection.call_tool("add", arguments)
            except ServerError as error:
                kinds.append(type(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(call, {"raw": "", "is_all": True})
            tasks.start_soon(call, {"stops": True})
    assert kinds == [OutcomeUnknownError] * 2

"""Messages of a server that nobody takes: over every transport few are read, and other calls are answered."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import ClientHandlers
from bridge.client.connection import backlog
from bridge.client.connection.backlog import Backlog
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.questions import ElicitationAnswer
from tests.client.conftest import DEADLINE_SECONDS, opened, python_config
from tests.client.http_client import sent_by
from tests.client.raw_http import DONE, Request, event, http, raw_server, response

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client import Connection, ServerConfig
    from bridge.types import Json

pytestmark = pytest.mark.anyio

MESSAGES = 1500
MAX_TASKS = 600
"""Those of two full backlogs, and of the connection."""
CODE = """
import json, sys, threading

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def flood(message, kind, count):
    token = message["params"].get("_meta", {}).get("progressToken")
    for number in range(count):
        if kind == "log":
            send({"method": "notifications/message", "params": {"level": "info", "data": number}})
        elif kind == "progress":
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": number}})
        elif kind == "question":
            params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            send({"id": number, "method": "elicitation/create", "params": params})
    send({"id": message["id"], "result": {"content": []}})

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        told = {"name": "flooding", "version": "1"}
        send({"id": message["id"], "result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": told}})
    elif method == "tools/call" and params["arguments"]:
        threading.Thread(target=flood, args=(message, *params["arguments"].values()), daemon=True).start()
    elif "id" in message and method:
        send({"id": message["id"], "result": {"content": []}})
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Caller(Channel):
    """A channel of a caller that takes messages when it reads.

    Attributes:
        received: Logged data, and amounts of progress.
        reads: Set while it reads.
        begun: Set once a message has arrived.
        tasks: The most tasks that ran when a message arrived.
    """

    def __init__(self, *, reads: bool) -> None:
        self.received: list[Any] = []
        self.reads, self.begun = anyio.Event(), anyio.Event()
        self.tasks = 0
        if reads:
            self.reads.set()

    @property
    def context(self) -> InvocationContext:
        """A context of it."""
        return InvocationContext(channel=self)

    async def _take(self, value: Any) -> None:
        self.begun.set()
        await self.reads.wait()
        self.tasks = max(self.tasks, len(asyncio.all_tasks()))
        self.received.append(value)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Take progress."""
        await self._take(int(progress))

    async def log(self, level: str, data: Any, logger: str | None) -> None:
        """Take a log message."""
        await self._take(data)


@pytest.fixture(params=["stdio", "http", "http by the client"])
async def config(request: pytest.FixtureRequest) -> AsyncIterator[ServerConfig]:
    """A server that sends many messages during a call."""
    if request.param == "stdio":
        yield python_config(CODE, protocol="legacy")
        return
    async with raw_server("legacy", _events) as server:
        yield sent_by(server.config(), own=request.param == "http")


def _events(request: Request) -> list[bytes | None]:
    arguments = request.message["params"]["arguments"]
    messages = (
        [_message(arguments["kind"], number, request) for number in range(arguments["count"])] if arguments else []
    )
    text = b"".join(map(event, [*messages, response(request.call_id, DONE)]))
    return [http(200, text, Content_Type="text/event-stream")]


def _message(kind: str, number: int, request: Request) -> Json:
    if kind == "log":
        return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}}
    params = {"progressToken": request.token, "progress": number}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


async def flood(connection: Connection, caller: Caller, kind: str, count: int = MESSAGES) -> None:
    await connection.call_tool("flood", {"kind": kind, "count": count}, context=caller.context)


KINDS = pytest.mark.parametrize("kind", ["log", "progress"])


@KINDS
async def test_a_caller_that_reads_gets_all_messages_and_few_wait(config: ServerConfig, kind: str) -> None:
    caller = Caller(reads=True)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with opened(config) as connection:
            await flood(connection, caller, kind)
    assert caller.received == list(range(MESSAGES))
    assert caller.tasks < MAX_TASKS


@KINDS
async def test_a_caller_that_does_not_read_delays_no_other(
    config: ServerConfig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "STALL_SECONDS", 0.05)
    caller = Caller(reads=False)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with opened(config) as connection, anyio.create_task_group() as tasks:
            tasks.start_soon(flood, connection, caller, kind)
            await caller.begun.wait()
            await connection.call_tool("quick", {})
            assert len(asyncio.all_tasks()) < MAX_TASKS
            caller.reads.set()
    assert 0 < len(caller.received) <= MESSAGES


async def test_requests_beyond_a_limit_are_refused_while_other_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "STALL_SECONDS", 0.05)
    asked, is_answered = 0, anyio.Event()

    async def answer(*_: Any) -> ElicitationAnswer:
        nonlocal asked
        asked += 1
        await is_answered.wait()
        return ElicitationAnswer("decline")

    config = python_config(CODE, protocol="legacy")
    with anyio.fail_after(DEADLINE_SECONDS):
        handlers = ClientHandlers(elicitation=answer)
        async with opened(config, handlers=handlers) as connection, anyio.create_task_group() as tasks:
            tasks.start_soon(flood, connection, Caller(reads=True), "question")
            while not asked:
                await connection.call_tool("quick", {})
            assert asked <= 2 * backlog.MAX_MESSAGES
            is_answered.set()


@pytest.fixture
def full() -> Backlog:
    """A backlog that is full."""
    made = Backlog()
    made.begin(backlog.MAX_MESSAGE_BYTES)
    return made


async def test_one_large_message_fills_a_backlog_until_it_is_delivered(full: Backlog) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(full.deliver, backlog.MAX_MESSAGE_BYTES, anyio.lowlevel.checkpoint)
        assert await full.has_room(lambda: True)
    assert not full.is_full


@pytest.mark.parametrize("params", [{"data": ["x", 1, {}] * 1000}, None])
def test_the_memory_of_values_counts(params: Json | None) -> None:
    assert backlog.memory_of(params) >= 16 * len(json.dumps(params or "")) - 100

"""A server in the same process, connected without bytes of a transport."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from bridge import InvocationContext, tool
from bridge.client import ClientHandlers, Connection, MemoryTransport, ServerConfig
from bridge.errors import ServerError
from bridge.server import Server
from bridge.tools.channel import Channel
from bridge.tools.questions import ElicitationAnswer

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
DEADLINE_SECONDS = 60
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
sender: ContextVar[str] = ContextVar("sender", default="nobody")


@tool
async def greet(context: InvocationContext) -> str:
    """Ask for a name, and tell who called."""
    await context.progress(1, 2, "asking")
    answer = await context.elicit("Your name?", FORM)
    return f"{sender.get()}: {(answer.content or {}).get('name')}"


class Caller(Channel):
    """A caller with a name, which keeps the progress of its call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.progressed: list[float] = []

    @property
    def peer(self) -> object:
        return self

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progressed.append(progress)


async def by_caller(_question: Any, context: InvocationContext) -> ElicitationAnswer:
    assert isinstance(context.peer, Caller)
    return ElicitationAnswer("accept", {"name": context.peer.name})


def connection_to(server: Server, era: Any, **options: Any) -> Connection:
    config = ServerConfig(name="greeter", transport=MemoryTransport(server), protocol=era)
    return Connection(config, **options)


@ERAS
async def test_each_question_reaches_the_call_that_asks_and_code_has_the_context_of_its_caller(era: str) -> None:
    callers = [Caller("Ada"), Caller("Grace")]
    texts: dict[str, str] = {}

    async def call(caller: Caller) -> None:
        sender.set(caller.name.lower())
        result = await connection.call_tool("greet", {}, context=InvocationContext(channel=caller))
        texts[caller.name] = result["content"][0]["text"]

    connection = connection_to(Server(greet, name="greeter"), era, handlers=ClientHandlers(elicitation=by_caller))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connection, anyio.create_task_group() as tasks:
            for caller in callers:
                tasks.start_soon(call, caller)
    assert texts == {"Ada": "ada: Ada", "Grace": "grace: Grace"}
    assert [caller.progressed[0] for caller in callers] == [1, 1]


@ERAS
async def test_calls_that_run_when_the_connection_closes_are_cancelled(era: str) -> None:
    running, cancelled = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> None:
        """Wait forever."""
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def call() -> None:
        with pytest.raises(ServerError):
            await connection.call_tool("wait", {})

    connection = connection_to(Server(wait, name="waiter"), era)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks, connection:
            tasks.start_soon(call)
            await running.wait()
        await cancelled.wait()

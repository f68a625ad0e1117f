"""A server that continues a cancelled call: its questions and messages reach no other caller."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import ClientHandlers
from bridge.client.connection import cancelled_calls
from bridge.gateway import Gateway
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.questions import ElicitationAnswer
from tests.client.conftest import DEADLINE_SECONDS, opened
from tests.client.reports import Reports, listening
from tests.gateway.between import caller, text_of
from tests.gateway.wayward import wayward_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client import Connection

pytestmark = pytest.mark.anyio

SECRET = "the number of a card"
HEEDLESS = """
for message in calls_and_answers("begin", "speak", "end"):
    name = message["params"]["name"] if "params" in message else "answer"
    if name == "begin":
        begun = message["id"]
        socket.create_connection(("127.0.0.1", message["params"]["arguments"]["port"])).sendall(b"began")
    elif name == "speak":
        speaking = message["id"]
        send(method="notifications/message", params={"level": "info", "data": "the number of a card"})
        ask("Your PIN?", "pin")
    elif name == "answer":
        send(id=speaking, result=text(json.dumps(message.get("result") or message["error"]["message"])))
    else:
        send(id=begun, result=text("late"))
        send(id=message["id"], result=text("ended"))
"""


class Person(Channel):
    """A caller, which records its messages and questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: list[object] = []
        self.asked: list[str] = []

    @property
    def peer(self) -> object:
        return self

    def handlers(self) -> ClientHandlers:
        return ClientHandlers(elicitation=self._answer)

    async def _answer(self, question: Any, context: InvocationContext) -> ElicitationAnswer:
        self.asked.append(question.message)
        return ElicitationAnswer("accept", {"pin": self.name})

    async def log(self, level: Any, data: Any, logger: str | None) -> None:
        self.heard.append(data)


class Callers:
    """Two callers of one gateway, and the reports of their server."""

    def __init__(self, reports: Reports) -> None:
        self.alice, self.bob = Person("alice"), Person("bob")
        self._reports = reports
        self._connections: dict[Person, Connection] = {}

    async def connect(self, stack: AsyncExitStack, gateway: Gateway) -> None:
        """Let both connect to a gateway."""
        for person in (self.alice, self.bob):
            connected = caller(gateway, era="legacy", handlers=person.handlers())
            self._connections[person] = await stack.enter_async_context(connected)

    async def begin_and_give_up(self, person: Person) -> None:
        """Call, and cancel the call once it runs; the server ignores the cancellation."""
        async with anyio.create_task_group() as tasks:
            arguments, context = {"port": self._reports.port}, InvocationContext(channel=person)
            tasks.start_soon(lambda: self._connections[person].call_tool("begin", arguments, context=context))
            await self._reports.wait_for("began")
            tasks.cancel_scope.cancel()

    async def call(self, person: Person, tool: str) -> str:
        """Call, and record the messages meanwhile."""
        context = InvocationContext(channel=person)
        return text_of(await self._connections[person].call_tool(tool, {}, context=context))


@asynccontextmanager
async def two_callers() -> AsyncIterator[Callers]:
    """Two callers of a gateway to one server over stdio."""
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(DEADLINE_SECONDS))
        reports = await stack.enter_async_context(listening())
        gateway = await stack.enter_async_context(Gateway([wayward_config(HEEDLESS)]))
        callers = Callers(reports)
        await callers.connect(stack, gateway)
        yield callers


async def test_what_a_server_says_and_asks_for_a_call_that_was_given_up_reaches_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "bridge.client")
    async with two_callers() as callers:
        await callers.begin_and_give_up(callers.alice)
        assert "the question was refused" in await callers.call(callers.bob, "speak")
        assert (callers.bob.asked, callers.bob.heard) == ([], [])
    assert f"server 'child': {SECRET}" in caplog.messages


async def test_whoever_gave_a_call_up_hears_and_is_asked_as_before() -> None:
    async with two_callers() as callers:
        await callers.begin_and_give_up(callers.alice)
        assert '"pin": "alice"' in await callers.call(callers.alice, "speak")
        assert (callers.alice.asked, callers.alice.heard) == (["Your PIN?"], [SECRET])


async def test_a_server_that_never_answers_a_cancelled_call_may_ask_others_after_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_callers() as callers:
        await callers.begin_and_give_up(callers.alice)
        assert "the question was refused" in await callers.call(callers.bob, "speak")
        later = monotonic() + cancelled_calls.GIVEN_UP_SECONDS
        monkeypatch.setattr(cancelled_calls, "monotonic", lambda: later)
        assert '"pin": "bob"' in await callers.call(callers.bob, "speak")
        assert (callers.bob.asked, callers.bob.heard) == (["Your PIN?"], [SECRET])


async def test_a_program_that_gave_a_call_up_has_its_own_contexts_where_it_is_asked_for_the_next() -> None:
    users: list[object] = []

    async def answer(question: Any, context: InvocationContext) -> ElicitationAnswer:
        users.append(context.parameters.get("user"))
        return ElicitationAnswer("decline")

    config, handlers = wayward_config(HEEDLESS), ClientHandlers(elicitation=answer)
    async with listening() as reports, opened(config, handlers=handlers) as connection:
        async with anyio.create_task_group() as tasks:
            arguments, context = {"port": reports.port}, InvocationContext(parameters={"user": "ada"})
            tasks.start_soon(lambda: connection.call_tool("begin", arguments, context=context))
            await reports.wait_for("began")
            tasks.cancel_scope.cancel()
        for user in ("ada", "eve"):
            await connection.call_tool("speak", {}, context=InvocationContext(parameters={"user": user}))
    assert users == ["ada", None]


async def test_once_the_call_has_been_answered_after_all_others_are_asked_again() -> None:
    async with two_callers() as callers:
        await callers.begin_and_give_up(callers.alice)
        assert await callers.call(callers.bob, "end") == "ended"
        assert '"pin": "bob"' in await callers.call(callers.bob, "speak")
        assert (callers.bob.asked, callers.bob.heard) == (["Your PIN?"], [SECRET])

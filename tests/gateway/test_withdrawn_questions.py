"""A question that a server withdraws is withdrawn from the caller."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import ClientHandlers
from bridge.gateway import Gateway
from tests.gateway.between import DEADLINE_SECONDS, caller, server_config, text_of
from tests.gateway.wayward import wayward_config
from tests.server.tools import NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bridge.client import Connection, ServerConfig
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import ElicitationAnswer

pytestmark = pytest.mark.anyio

FORGETFUL = """
for message in calls_and_answers("greet", "end"):
    if "method" not in message:
        continue
    if message["params"]["name"] == "greet":
        greeting = message["id"]
        ask("Who are you?", "name")
    else:
        send(id=greeting, result=text("nobody answered"))
        send(id=message["id"], result=text("ended"))
"""


class Slow:
    """Handler that never answers, and records cancellations."""

    def __init__(self) -> None:
        self.asked, self.withdrawn = anyio.Event(), anyio.Event()

    async def answer(self, question: Any, context: InvocationContext) -> ElicitationAnswer:
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.withdrawn.set()
        raise AssertionError

    def handlers(self) -> ClientHandlers:
        return ClientHandlers(elicitation=self.answer)


@asynccontextmanager
async def answering(config: ServerConfig, person: Slow) -> AsyncIterator[Connection]:
    """Connect a caller with this handler to a gateway to one server; the block has a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            Gateway([config]) as gateway,
            caller(gateway, era="legacy", handlers=person.handlers()) as connection,
        ):
            yield connection


def impatient(person: Slow) -> ServerConfig:
    """A server whose tool stops waiting once its question has arrived."""

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(context.elicit, "Who are you?", NAME_FORM)
            await person.asked.wait()
            tasks.cancel_scope.cancel()
        return "nobody answered"

    return server_config(made("greet", body))


async def test_a_result_waits_for_no_question_that_its_server_has_withdrawn() -> None:
    person = Slow()
    async with answering(impatient(person), person) as connection:
        assert text_of(await connection.call_tool("greet", {})) == "nobody answered"
        await person.withdrawn.wait()


async def test_a_result_waits_for_no_question_of_its_own_call() -> None:
    person, results = Slow(), []
    config = wayward_config(FORGETFUL)
    async with answering(config, person) as connection, anyio.create_task_group() as tasks:

        async def greet() -> None:
            results.append(text_of(await connection.call_tool("greet", {})))

        tasks.start_soon(greet)
        await person.asked.wait()
        assert text_of(await connection.call_tool("end", {})) == "ended"
        await person.withdrawn.wait()
    assert results == ["nobody answered"]

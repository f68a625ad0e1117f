"""Concurrent calls of a server whose questions name no call: a single caller is asked, several are not."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import ClientHandlers
from bridge.gateway import Gateway
from bridge.tools.questions import ElicitationAnswer
from tests.client.conftest import stdio_config
from tests.gateway.between import DEADLINE_SECONDS, caller, text_of

if TYPE_CHECKING:
    from bridge.client import Connection
    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio

ALONE, TOGETHER = "order", "order_together"


class People:
    """Handler of questions that has a name of its own."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def handlers(self, name: str) -> ClientHandlers:
        async def choose(question: Any, context: InvocationContext) -> ElicitationAnswer:
            self.asked.append(name)
            return ElicitationAnswer("accept", {"dish": name})

        return ClientHandlers(elicitation=choose)


async def ordered(*callers: Connection, tool: str = TOGETHER) -> list[str]:
    """Return the results of concurrent calls, one for each of these."""
    results: list[str] = []

    async def order(connection: Connection) -> None:
        results.append(text_of(await connection.call_tool(tool, {})))

    async with anyio.create_task_group() as tasks:
        for connection in callers:
            tasks.start_soon(order, connection)
    return sorted(results)


async def opened(stack: AsyncExitStack, people: People, *eras: str) -> list[Connection]:
    """Callers of these eras before one gateway to one server over stdio, which speaks the handshake era."""
    stack.enter_context(anyio.fail_after(DEADLINE_SECONDS))
    gateway = await stack.enter_async_context(Gateway([stdio_config(protocol="legacy")]))
    return [
        await stack.enter_async_context(caller(gateway, era=era, handlers=people.handlers(f"caller {number}")))
        for number, era in enumerate(eras)
    ]


async def test_calls_at_once_of_one_caller_are_asked_of_that_caller() -> None:
    people = People()
    async with AsyncExitStack() as stack:
        (one,) = await opened(stack, people, "legacy")
        assert await ordered(one, one) == ["caller 0", "caller 0"]
    assert people.asked == ["caller 0", "caller 0"]


@pytest.mark.parametrize("eras", [("legacy", "legacy"), ("legacy", "2026-07-28"), ("2026-07-28", "2026-07-28")])
async def test_of_several_callers_nobody_is_asked_for_another(eras: tuple[str, str]) -> None:
    people = People()
    async with AsyncExitStack() as stack:
        both = await opened(stack, people, *eras)
        for told in await ordered(*both):
            assert "calls of several callers are running" in told
        assert people.asked == []
        # Each alone is asked.
        for number, connection in enumerate(both):
            assert await ordered(connection, tool=ALONE) == [f"caller {number}"]
    assert people.asked == ["caller 0", "caller 1"]

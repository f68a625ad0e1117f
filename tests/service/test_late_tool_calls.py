"""Compensation of calls that succeed in a thread after their time limit."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import tools_from
from bridge.errors import ChatModelError, InvocationTimeoutError
from bridge.service.compensation import compensated
from bridge.service.loop import InvocationLimits
from bridge.tools import ToolPolicy
from tests.service.fakes import DEADLINE_SECONDS, ask, assistant, call, calls
from tests.service.test_compensation import ERROR

if TYPE_CHECKING:
    from bridge.service.messages import AiMessage

pytestmark = pytest.mark.anyio


class SlowDesk:
    """Books in a worker thread when the test releases it, and cancels bookings."""

    def __init__(self) -> None:
        self.may_book = threading.Event()
        self.booked: list[str] = []
        self.undone: list[str] = []
        self._changed = threading.Condition()

    def book(self, city: str) -> dict[str, str]:
        self.booked.append(f"F-{city}")
        assert self.may_book.wait(DEADLINE_SECONDS)
        return {"booking": f"F-{city}"}

    async def cancel(self, booking: str) -> None:
        with self._changed:
            self.undone.append(booking)
            self._changed.notify_all()

    def all_is_undone(self) -> bool:
        """Wait until every booking is undone."""
        with self._changed:
            return self._changed.wait_for(lambda: self.undone == self.booked, DEADLINE_SECONDS)

    def tools(self) -> list[Any]:
        return [compensated(self.book, "cancel"), self.cancel]


BOOK = call("book", city="Rome")


@pytest.mark.parametrize("executor", [False, True])
async def test_a_thread_that_succeeds_after_the_services_timeout_is_undone(way: str, executor: bool) -> None:
    desk = SlowDesk()
    with ThreadPoolExecutor(1) as pool:
        options: dict[str, Any] = {"execute_tools_concurrently": pool} if executor else {}
        service = assistant(calls(BOOK), tools=desk.tools(), limits=InvocationLimits(timeout_seconds=0.05), **options)
        with pytest.raises(InvocationTimeoutError):
            await ask(service, way)
        assert desk.undone == []
        desk.may_book.set()
        assert await anyio.to_thread.run_sync(desk.all_is_undone)


async def test_a_thread_that_succeeds_after_its_tools_timeout_is_undone_if_the_invocation_fails(way: str) -> None:
    desk = SlowDesk()

    async def go_on(_: object) -> AiMessage:
        desk.may_book.set()  # the first call returns while the model replies
        return calls(BOOK)

    tools = [compensated(slow(desk), "cancel"), desk.cancel]
    service = assistant(calls(BOOK), go_on, ERROR, tools=tools)
    with pytest.raises(ChatModelError):
        await ask(service, way)
    assert await anyio.to_thread.run_sync(desk.all_is_undone)


def slow(desk: SlowDesk) -> Any:
    return replace(tools_from(desk.book)[0], policy=ToolPolicy(timeout_seconds=0.05))


def test_a_thread_that_outlives_the_event_loop_is_undone_elsewhere() -> None:
    desk = SlowDesk()
    service = assistant(calls(BOOK), tools=desk.tools(), limits=InvocationLimits(timeout_seconds=0.05))
    with pytest.raises(InvocationTimeoutError):
        asyncio.run(service.chat("Go"))
    desk.may_book.set()
    assert desk.all_is_undone()


async def test_a_late_success_that_the_model_was_told_failed_is_undone_although_the_invocation_succeeds(
    way: str,
) -> None:
    desk = SlowDesk()
    tools = [compensated(slow(desk), "cancel"), desk.cancel]
    with ThreadPoolExecutor(1) as pool:
        service = assistant(calls(BOOK), "It takes longer.", tools=tools, execute_tools_concurrently=pool)
        assert (await ask(service, way)).content == "It takes longer."
        desk.may_book.set()
        assert await anyio.to_thread.run_sync(desk.all_is_undone)

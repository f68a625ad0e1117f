"""Calls of the modern era whose clients disconnect, through ASGI on both event loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge import InvocationContext, ToolError, tool
from bridge.portal import runs_on_asyncio
from tests.server.http_endpoint import MODERN_CALL, Exchange, ServedEndpoint
from tests.server.http_server import call, modern

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 60
SOON_SECONDS = 0.01

pytestmark = pytest.mark.anyio
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


async def wait(released: anyio.Event) -> None:
    await released.wait()


class Work:
    """A tool that runs a body, its request, and the state of the task that answers it.

    Args:
        body: Waits until an event is set.
        takes_context: True if the tool takes a context.
    """

    def __init__(self, body: Callable[[anyio.Event], Awaitable[Any]] = wait, *, takes_context: bool = False) -> None:
        self.released = anyio.Event()
        self.was_cancelled = False
        self.cancellations = 0
        self._body = body

        async def work() -> str:
            """Work."""
            return await self._run()

        async def work_in_context(context: InvocationContext) -> str:
            """Work."""
            return await self._run()

        work_in_context.__name__ = "work"
        self._served = ServedEndpoint(tool(work_in_context if takes_context else work))
        self.exchange = Exchange(MODERN_CALL | {"mcp-name": "work"}, modern(call("work")))

    async def _run(self) -> str:
        try:
            await self._body(self.released)
        except anyio.get_cancelled_exc_class():
            self.was_cancelled = True
            raise
        return "done"

    async def answer(self) -> None:
        """Answer the request."""
        await self.exchange.run(self._served)
        if runs_on_asyncio():
            task = asyncio.current_task()
            assert task is not None
            self.cancellations = task.cancelling()
        await checkpoint()  # which would raise if the task were still being cancelled

    async def answer_while(self, act: Callable[[], object]) -> None:
        """Answer the request; act once it is watched."""
        with anyio.fail_after(DEADLINE_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.answer)
                await self.exchange.listened.wait()
                await anyio.wait_all_tasks_blocked()
                act()
        self.check()

    def check(self) -> None:
        """Check that nothing is left of the request."""
        assert (self.exchange.listeners, self.cancellations, len(self._served.running)) == (0, 0, 0)

    async def disconnected(self) -> None:
        """Answer the request of a client that disconnects: it gets nothing."""
        await self.answer_while(self.exchange.gone.set)
        assert (self.exchange.is_over, self.exchange.sent) == (True, [])

    @property
    def text(self) -> str:
        """Text of the result."""
        text: str = self.exchange.answer[2]["result"]["content"][0]["text"]
        return text


@pytest.fixture(params=[False, True], ids=["alone", "context"])
def takes_context(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@on_asyncio
async def test_a_call_that_ends_at_once_is_never_watched(*, takes_context: bool) -> None:
    async def end(_: anyio.Event) -> None:
        pass

    work = Work(end, takes_context=takes_context)
    await work.answer()
    assert (work.text, work.exchange.listened.is_set()) == ("done", False)


async def test_what_a_call_raises_at_once_is_answered(*, takes_context: bool) -> None:
    async def fail(_: anyio.Event) -> None:
        raise ToolError("no")

    work = Work(fail, takes_context=takes_context)
    await work.answer()
    assert work.text == "no"


async def test_a_call_that_waits_is_watched_until_it_ends_and_no_longer(*, takes_context: bool) -> None:
    work = Work(takes_context=takes_context)
    await work.answer_while(work.released.set)
    assert (work.text, work.was_cancelled) == ("done", False)


async def test_a_call_that_waits_is_cancelled_when_its_client_disconnects(*, takes_context: bool) -> None:
    work = Work(takes_context=takes_context)
    await work.disconnected()
    assert work.was_cancelled


async def test_the_result_of_a_call_that_swallows_the_cancellation_is_dropped() -> None:
    async def swallow(released: anyio.Event) -> None:
        with pytest.raises(anyio.get_cancelled_exc_class()):
            await released.wait()

    work = Work(swallow)
    await work.disconnected()
    assert not work.was_cancelled


async def test_what_a_call_raises_for_the_cancellation_is_dropped() -> None:
    async def translate(released: anyio.Event) -> None:
        try:
            await released.wait()
        except anyio.get_cancelled_exc_class():
            raise ToolError("interrupted") from None

    await Work(translate).disconnected()


async def in_scopes(released: anyio.Event) -> None:
    with anyio.move_on_after(DEADLINE_SECONDS), anyio.CancelScope():
        await released.wait()


async def in_a_group(released: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(released.wait)
        tasks.start_soon(released.wait)


async def under_asyncio(released: anyio.Event) -> None:
    if not runs_on_asyncio():
        await released.wait()
        return
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(released.wait())


BODIES = pytest.mark.parametrize("body", [in_scopes, in_a_group, under_asyncio], ids=["scopes", "group", "asyncio"])


@BODIES
async def test_scopes_groups_and_timeouts_inside_a_call_let_the_cancellation_through(
    body: Callable[[anyio.Event], Awaitable[Any]], *, takes_context: bool
) -> None:
    work = Work(body, takes_context=takes_context)
    await work.disconnected()
    assert work.was_cancelled


@BODIES
async def test_scopes_groups_and_timeouts_inside_a_call_are_its_own(
    body: Callable[[anyio.Event], Awaitable[Any]], *, takes_context: bool
) -> None:
    work = Work(body, takes_context=takes_context)
    await work.answer_while(work.released.set)
    assert work.text == "done"


async def test_a_timeout_that_expires_inside_a_call_ends_only_what_it_surrounds() -> None:
    async def give_up(released: anyio.Event) -> None:
        with anyio.move_on_after(SOON_SECONDS):
            await released.wait()
        with pytest.raises(TimeoutError), anyio.fail_after(SOON_SECONDS):
            await released.wait()

    work = Work(give_up)
    with anyio.fail_after(DEADLINE_SECONDS):
        await work.answer()
    work.check()
    assert work.text == "done"


@on_asyncio
@pytest.mark.parametrize("disconnects", [False, True])
async def test_a_task_that_is_cancelled_for_another_reason_stays_cancelled(*, disconnects: bool) -> None:
    work = Work()
    task = asyncio.get_running_loop().create_task(work.answer())
    with anyio.fail_after(DEADLINE_SECONDS):
        await work.exchange.listened.wait()
        if disconnects:
            work.exchange.gone.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    work.check()
    assert (work.exchange.is_over, work.exchange.sent, work.was_cancelled) == (False, [], True)


async def test_an_outer_scope_cancels_the_call_and_is_not_mistaken_for_the_client() -> None:
    work = Work()
    with anyio.fail_after(DEADLINE_SECONDS), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.answer)
            await work.exchange.listened.wait()
            scope.cancel()
    work.check()
    assert scope.cancelled_caught
    assert (work.exchange.is_over, work.exchange.sent, work.was_cancelled) == (False, [], True)

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.server.http.streams import ClientDisconnectedError, run_until_disconnect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Message

DEADLINE_SECONDS = 10
SOON_SECONDS = 0.01

pytestmark = pytest.mark.anyio


class Client:
    """Messages about the client that a request receives."""

    def __init__(self) -> None:
        self.listeners = 0
        self.was_listened_to = anyio.Event()
        self._gone = anyio.Event()
        self._before: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self) -> Message:
        self.was_listened_to.set()
        self.listeners += 1
        try:
            if self._before:
                return self._before.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}
        finally:
            self.listeners -= 1

    def hang_up(self) -> None:
        self._gone.set()


class Work:
    """A call that waits, and reports its end."""

    def __init__(self, body: Callable[[anyio.Event], Awaitable[Any]] | None = None) -> None:
        self.started = anyio.Event()
        self.released = anyio.Event()
        self.was_cancelled = False
        self._body = body

    async def run(self) -> str:
        self.started.set()
        try:
            await (self.released.wait() if self._body is None else self._body(self.released))
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return "done"


class Outcome:
    """End of a request, and the state of its task."""

    def __init__(self, work: Work, client: Client) -> None:
        self._work, self._client = work, client
        self.value: str | None = None
        self.error: BaseException | None = None
        self.cancellations = 0

    async def settle(self) -> None:
        try:
            self.value = await run_until_disconnect(self._work.run(), self._client.receive)
        except (ClientDisconnectedError, ValueError) as error:
            self.error = error
        task = asyncio.current_task()
        assert task is not None
        self.cancellations = task.cancelling()
        await checkpoint()  # which would raise if the task were still being cancelled


async def hung_up_on(work: Work) -> Outcome:
    """Run work whose client disconnects."""
    client = Client()
    outcome = Outcome(work, client)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome.settle)
            await work.started.wait()
            await client.was_listened_to.wait()
            client.hang_up()
    await checkpoint()
    assert client.listeners == 0
    assert outcome.cancellations == 0
    return outcome


async def test_work_that_is_done_at_once_is_never_watched() -> None:
    client = Client()

    async def add() -> int:
        return 1 + 2

    assert await run_until_disconnect(add(), client.receive) == 3
    await checkpoint()
    assert not client.was_listened_to.is_set()


async def test_what_work_raises_at_once_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("no")

    client = Client()
    with pytest.raises(ValueError, match="no"):
        await run_until_disconnect(fail(), client.receive)
    assert not client.was_listened_to.is_set()


async def test_work_that_waits_is_watched_until_it_is_done_and_no_longer() -> None:
    client, work = Client(), Work()
    outcome = Outcome(work, client)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome.settle)
            await client.was_listened_to.wait()
            work.released.set()
    await checkpoint()
    assert (outcome.value, outcome.error, outcome.cancellations) == ("done", None, 0)
    assert client.listeners == 0


async def test_work_that_waits_is_cancelled_when_the_client_goes() -> None:
    work = Work()
    outcome = await hung_up_on(work)
    assert isinstance(outcome.error, ClientDisconnectedError)
    assert work.was_cancelled


async def _swallow(released: anyio.Event) -> None:
    try:
        await released.wait()
    except asyncio.CancelledError:
        await checkpoint()  # continues as usual


async def test_what_work_returns_that_swallows_the_cancellation_goes_nowhere() -> None:
    work = Work(_swallow)
    outcome = await hung_up_on(work)
    assert isinstance(outcome.error, ClientDisconnectedError)
    assert not work.was_cancelled


async def test_what_work_raises_for_the_cancellation_is_raised() -> None:
    async def translate(released: anyio.Event) -> None:
        try:
            await released.wait()
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None

    outcome = await hung_up_on(Work(translate))
    assert isinstance(outcome.error, ValueError)


async def _in_scopes(released: anyio.Event) -> None:
    with anyio.move_on_after(DEADLINE_SECONDS), anyio.CancelScope():
        await released.wait()


async def _in_a_group(released: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(released.wait)
        tasks.start_soon(released.wait)


async def _under_asyncio(released: anyio.Event) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as tasks:
        tasks.create_task(released.wait())


@pytest.mark.parametrize("body", [_in_scopes, _in_a_group, _under_asyncio], ids=["scopes", "group", "asyncio"])
async def test_scopes_groups_and_timeouts_inside_the_work_let_the_cancellation_through(
    body: Callable[[anyio.Event], Awaitable[Any]],
) -> None:
    work = Work(body)
    outcome = await hung_up_on(work)
    assert isinstance(outcome.error, ClientDisconnectedError)
    assert work.was_cancelled


@pytest.mark.parametrize("body", [_in_scopes, _in_a_group, _under_asyncio], ids=["scopes", "group", "asyncio"])
async def test_scopes_groups_and_timeouts_inside_the_work_are_their_own(
    body: Callable[[anyio.Event], Awaitable[Any]],
) -> None:
    client, work = Client(), Work(body)
    outcome = Outcome(work, client)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome.settle)
            await client.was_listened_to.wait()
            work.released.set()
    assert (outcome.value, outcome.cancellations) == ("done", 0)


async def test_a_timeout_that_runs_out_inside_the_work_ends_only_what_it_surrounds() -> None:
    async def give_up(released: anyio.Event) -> None:
        with anyio.move_on_after(SOON_SECONDS):
            await released.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_SECONDS):
                await released.wait()

    client, work = Client(), Work(give_up)
    outcome = Outcome(work, client)
    with anyio.fail_after(DEADLINE_SECONDS):
        await outcome.settle()
    assert (outcome.value, outcome.cancellations, client.listeners) == ("done", 0, 0)


@pytest.mark.parametrize("goes", [False, True], ids=["the client stays", "the client goes, too"])
async def test_a_task_that_is_cancelled_for_another_reason_stays_cancelled(*, goes: bool) -> None:
    client, work = Client(), Work()
    outcome = Outcome(work, client)
    task = asyncio.get_running_loop().create_task(outcome.settle())
    with anyio.fail_after(DEADLINE_SECONDS):
        await client.was_listened_to.wait()
        if goes:
            client.hang_up()
            await checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (outcome.value, outcome.error, client.listeners) == (None, None, 0)
    assert work.was_cancelled


async def test_an_outer_scope_cancels_the_work_and_is_not_mistaken_for_the_client() -> None:
    client, work = Client(), Work()
    outcome = Outcome(work, client)
    with anyio.fail_after(DEADLINE_SECONDS), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome.settle)
            await client.was_listened_to.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert (outcome.value, outcome.error) == (None, None)
    assert work.was_cancelled

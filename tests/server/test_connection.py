"""One client over one stream, in both eras, on both event loops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import anyio
import pytest

from bridge import tool
from bridge.server.server import Server
from bridge.tools.context import InvocationContext  # noqa: TC001 - read at runtime
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, modern, notification, request
from tests.server.stream_peer import Peer, cancellation, codes, published
from tests.server.tools import ADD, GREET, Waiting, made

CLOSED = {"code": -32000, "message": "Connection closed"}

pytestmark = pytest.mark.anyio
in_both_eras = pytest.mark.parametrize("is_modern", [False, True])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


# --- cancellation ----------------------------------------------------------------------------------------------------


@in_both_eras
@pytest.mark.parametrize(("running", "named"), [(7, 7), (7, "7"), ("7", 7), ("seven", "seven")])
async def test_a_call_is_cancelled_by_its_id_and_not_answered(
    running: int | str, named: int | str, *, is_modern: bool
) -> None:
    waiting = Waiting()
    async with Peer(published(waiting.tool), is_modern=is_modern).open() as peer:
        peer.send(call("wait") | {"id": running})
        await waiting.started.wait()
        peer.send(*map(cancellation, (8, None, True, [7])), notification("notifications/cancelled"))
        peer.send(call("wait") | {"id": named})
        assert codes(peer.received()) == {named: -32600}  # the id is in use
        assert peer.connection.unanswered == 1
        peer.send(cancellation(named))
        assert peer.connection.unanswered == 0
        await waiting.cancelled.wait()
        await peer.connection.ended()
        assert peer.received() == []


@in_both_eras
async def test_a_call_that_is_cancelled_before_it_runs_is_over(*, is_modern: bool) -> None:
    async with Peer(published(Waiting().tool), is_modern=is_modern).open() as peer:
        for _ in range(2):  # its id can be used again
            peer.send(call("wait") | {"id": 7}, cancellation(7))
            await peer.connection.ended()
        assert peer.received() == []


async def test_a_call_that_ends_although_its_client_has_cancelled_it_is_not_answered() -> None:
    async def end(arguments: Any, context: InvocationContext) -> str:
        with anyio.CancelScope(shield=True):
            await waiting.released.wait()
        return "released"

    waiting = Waiting()
    async with Peer(published(made("end", end))).open() as peer:
        peer.send(call("end") | {"id": 7})
        await anyio.wait_all_tasks_blocked()
        peer.send(cancellation(7))
        waiting.released.set()
        await peer.connection.ended()
        assert peer.received() == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("talks", [False, True])
async def test_a_tool_that_cancels_its_own_task_is_answered_with_an_error(*, talks: bool) -> None:
    async def cancelling() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def talking(context: InvocationContext) -> None:
        await context.progress(1)
        await cancelling()

    async with Peer(published(tool(name="one")(talking if talks else cancelling), ADD)).open() as peer:
        peer.send(call("one") | {"id": 7}, call("add", {"a": 1, "b": 2}) | {"id": 8})
        assert codes(await peer.answers()) == {7: -32603, 8: 0}


# --- the first step of a call -----------------------------------------------------------------------------------------


async def sent(peer: Peer, *messages: Any) -> list[dict[str, Any]]:
    """Send messages as a pipe does, outside of any task; return the answers of the same turn."""
    loop = asyncio.get_running_loop()
    answers: asyncio.Future[list[dict[str, Any]]] = loop.create_future()

    def send() -> None:
        peer.send(*messages)
        answers.set_result(peer.received())

    loop.call_soon(send)
    return await answers


@in_both_eras
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_function_that_does_not_wait_is_answered_in_the_turn_of_its_message(*, is_modern: bool) -> None:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with Peer(published(add), is_modern=is_modern).open() as peer:
        await sent(peer, call("add", {"a": 1, "b": 2}) | {"id": 7})  # its task is the one of the next calls
        await peer.answers()
        calls = [call("add", {"a": 1, "b": number}) | {"id": number} for number in (8, 9)]
        answers = await sent(peer, *calls)
    assert [each["result"]["structuredContent"]["result"] for each in answers] == [9, 10]


@in_both_eras
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_function_that_has_waited_is_cancelled_outside_of_its_shields(*, is_modern: bool) -> None:
    @tool
    async def commit() -> None:
        with anyio.CancelScope(shield=True):
            started.set()
            await released.wait()
            notes.append("committed")
        await anyio.sleep_forever()

    notes = list[str]()
    async with Peer(published(commit), is_modern=is_modern).open() as peer:
        for number in (7, 8, 9):
            started, released = anyio.Event(), anyio.Event()
            await sent(peer, call("commit") | {"id": number})
            await started.wait()
            assert await sent(peer, cancellation(number), request("ping", request_id=number)) != []
            released.set()
            await peer.connection.ended()
        assert peer.received() == []
    assert notes == ["committed"] * 3


# --- the end ---------------------------------------------------------------------------------------------------------


@in_both_eras
async def test_calls_that_run_at_the_end_are_answered_that_the_connection_is_closed(*, is_modern: bool) -> None:
    waiting = Waiting()
    async with Peer(published(waiting.tool), is_modern=is_modern).open() as peer:
        peer.send(*(call("wait") | {"id": number} for number in (7, 8)), cancellation(8))
        await waiting.started.wait()
        peer.connection.cancel()
        await peer.connection.ended()
        assert peer.received() == [{"jsonrpc": "2.0", "id": 7, "error": CLOSED}]
        peer.send(call("wait") | {"id": 9})
        assert peer.received() == []


async def test_a_call_that_cannot_be_cancelled_is_answered_once_and_goes_on() -> None:
    async def stay(arguments: Any, context: InvocationContext) -> str:
        with anyio.CancelScope(shield=True):
            await released.wait()
            left.set()
        return "late"

    released, left = anyio.Event(), anyio.Event()
    async with Peer(published(made("stay", stay))).open() as peer:
        peer.send(call("stay") | {"id": 7})
        await anyio.wait_all_tasks_blocked()
        peer.connection.cancel()
        await anyio.wait_all_tasks_blocked()
        peer.connection.answer_unfinished()
        assert peer.received() == [{"jsonrpc": "2.0", "id": 7, "error": CLOSED}]
        released.set()
        await peer.connection.ended()
        assert left.is_set()
        assert peer.received() == []


async def test_a_result_that_comes_after_the_end_has_begun_is_sent() -> None:
    async def clean_up(arguments: Any, context: InvocationContext) -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "cleaned up"

    async with Peer(published(made("clean", clean_up))).open() as peer:
        peer.send(call("clean") | {"id": 7})
        await anyio.wait_all_tasks_blocked()
        peer.connection.cancel()
        await peer.connection.ended()
        assert [each["result"]["content"][0]["text"] for each in peer.received()] == ["cleaned up"]


async def test_the_end_of_the_task_that_serves_it_cancels_what_runs() -> None:
    waiting = Waiting()
    peer = Peer(published(waiting.tool))
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            async with peer.open():
                peer.send(call("wait") | {"id": 7})
                await anyio.sleep_forever()

        tasks.start_soon(serve)
        await waiting.started.wait()
        tasks.cancel_scope.cancel()
    assert waiting.cancelled.is_set()
    assert codes(peer.received()) in ({}, {7: -32000})


async def test_a_subscription_is_not_waited_for_and_hears_of_changes() -> None:
    tools = ToolBox(ADD)
    async with Peer(Server(tools, name="tests"), is_modern=True).open() as peer:
        peer.send(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 7))
        await anyio.wait_all_tasks_blocked()
        assert peer.connection.unanswered == 0
        tools.add(GREET)
        await anyio.wait_all_tasks_blocked()
        assert [each["method"] for each in peer.received()] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
        ]
        peer.send(cancellation(7))
        await peer.connection.ended()
        tools.add(Waiting().tool)
        await anyio.wait_all_tasks_blocked()
        assert peer.received() == []


# --- eras ------------------------------------------------------------------------------------------------------------


async def test_the_first_request_selects_the_era_and_the_other_is_refused() -> None:
    async with Peer(published(ADD)).open() as peer:
        peer.send(modern(call("add", {"a": 1, "b": 2})) | {"id": 7}, call("add", {"a": 1, "b": 2}) | {"id": 8})
        assert codes(await peer.answers()) == {7: -32600, 8: 0}
    async with Peer(published(ADD), is_modern=True).open() as peer:
        peer.send(notification("notifications/initialized"), request("server/discover", {}, 6))
        peer.connection.receive(initialize() | {"id": 7})
        peer.connection.receive(request("initialize", {"protocolVersion": 5}, 8))
        peer.connection.receive(request("tools/list", {}, 9))
        found = await peer.answers()
        assert codes(found) == {6: 0, 7: -32022, 8: -32022, 9: -32602}
        assert found[1]["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


async def test_where_the_modern_era_is_not_served_its_methods_are_unknown() -> None:
    peer = Peer(published(ADD), is_modern_served=False)
    async with peer.connection.running():
        peer.send(modern(request("server/discover", {}, 1)), initialize() | {"id": 2})
        assert codes(peer.received()) == {1: -32601, 2: 0}


async def test_a_session_hears_of_changes_once_it_is_initialized() -> None:
    tools = ToolBox(ADD)
    peer = Peer(Server(tools, name="tests"))
    async with peer.connection.running():
        peer.send(notification("notifications/initialized"))  # too early
        peer.send(initialize())
        tools.add(GREET)
        await anyio.wait_all_tasks_blocked()
        peer.received()
        peer.send(*[notification("notifications/initialized")] * 2)
        tools.add(Waiting().tool)
        await anyio.wait_all_tasks_blocked()
        assert peer.received() == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]

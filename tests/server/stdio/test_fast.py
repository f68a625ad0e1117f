from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge import tool, tools_from
from bridge.server.publisher import Publisher
from bridge.server.stdio.fast import FastStdio
from bridge.tools.context import InvocationContext  # noqa: TC001 - read at runtime
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, notification
from tests.server.tools import ADD, Waiting

DEADLINE_SECONDS = 10

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("running", "named"), [(7, 7), (7, "7"), ("7", 7), ("seven", "seven")])
async def test_a_call_is_cancelled_by_its_id_and_not_answered(running: int | str, named: int | str) -> None:
    waiting, lines, answered = Waiting(), list[bytes](), list[int | str]()
    tools = ToolBox(replace(waiting.tool, interactive=False))
    fast = FastStdio(Publisher(tools, name="tests"), lines.append, answered.append, list[object]().append)
    assert fast.handles(initialize())
    lines.clear()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert fast.handles(call("wait") | {"id": running})
        await waiting.started.wait()
        others: tuple[Any, ...] = (8, None, True, [7])
        for other in others:
            assert not fast.handles(notification("notifications/cancelled", {"requestId": other}))
        assert not fast.handles(call("wait") | {"id": named})  # the ID is in use
        assert fast.handles(notification("notifications/cancelled", {"requestId": named}))
        await waiting.cancelled.wait()
        await fast.ended()
        await checkpoint()
    assert (lines, answered) == ([], [1, running])


@pytest.mark.parametrize("talks", [False, True])
async def test_a_tool_that_cancels_its_own_task_is_answered_with_an_error(talks: bool) -> None:
    async def cancelling() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def talking(context: InvocationContext) -> None:
        assert context.round == 0
        await cancelling()

    lines, answered = list[bytes](), list[int | str]()
    publisher = Publisher(ToolBox(tool(name="one")(talking if talks else cancelling)), name="tests")
    fast = FastStdio(publisher, lines.append, answered.append, list[object]().append)
    assert fast.handles(initialize())
    lines.clear()
    assert fast.handles(call("one") | {"id": 7})
    with anyio.fail_after(DEADLINE_SECONDS):
        await fast.ended()
    (line,) = lines
    assert json.loads(line)["id"] == 7
    assert json.loads(line)["error"]["code"] == -32603
    assert answered == [1, 7]


async def test_a_call_that_the_sdk_has_keeps_its_id_and_is_cancelled_if_the_sdk_answers_for_it() -> None:
    cancelled = anyio.Event()

    @tool
    async def talk(context: InvocationContext) -> str:
        """Log a line, which the SDK has to send."""
        try:
            await context.log("info", "half")
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise
        return "done"

    lines, answered, for_sdk = list[bytes](), list[int | str](), list[Any]()
    publisher = Publisher(ToolBox(tools_from(talk)), name="tests")
    fast = FastStdio(publisher, lines.append, answered.append, for_sdk.append)
    assert fast.handles(initialize())
    lines.clear()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert fast.handles(call("talk") | {"id": 7})
        while not for_sdk:
            await checkpoint()
        assert fast.handles(call("talk") | {"id": 7})
        assert [json.loads(line)["error"]["code"] for line in lines] == [-32600]
        fast.answered_by_sdk(7)
        await cancelled.wait()
    assert publisher.handed_over == {}
    assert answered == [1, 7]


async def test_a_call_that_is_cancelled_before_it_begins_is_over() -> None:
    waiting, answered = Waiting(), list[int | str]()
    tools = ToolBox(replace(waiting.tool, interactive=False))
    fast = FastStdio(Publisher(tools, name="tests"), list[bytes]().append, answered.append, list[object]().append)
    assert fast.handles(initialize())
    with anyio.fail_after(DEADLINE_SECONDS):
        for _ in range(2):  # its ID can be used again
            assert fast.handles(call("wait") | {"id": 7})
            assert fast.handles(notification("notifications/cancelled", {"requestId": 7}))
            await fast.ended()
        assert fast.handles(call("wait") | {"id": 8})
        fast.cancel()
        await fast.ended()
    assert answered == [1, 7, 7, 8]


async def test_a_memory_that_cannot_be_told_is_an_error_of_its_call_and_the_next_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def memory_id_of(context: InvocationContext) -> Any:
        raise ValueError("the secret")

    lines, answered = list[bytes](), list[int | str]()
    publisher = Publisher(ToolBox(replace(ADD, interactive=False)), name="tests", memory_id_of=memory_id_of)
    fast = FastStdio(publisher, lines.append, answered.append, list[object]().append)
    assert fast.handles(initialize())
    with anyio.fail_after(DEADLINE_SECONDS):
        for request_id in (7, 7):
            assert fast.handles(call("add", {"a": 1, "b": 2}) | {"id": request_id})
            await fast.ended()
    told = [json.loads(line)["error"] for line in lines[1:]]
    assert told == [{"code": -32603, "message": "the request for 'add' failed; the server's log says why"}] * 2
    assert answered == [1, 7, 7]
    assert "the secret" in caplog.text

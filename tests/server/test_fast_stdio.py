from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.server.fast_stdio import FastStdio
from bridge.server.publisher import Publisher
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, notification
from tests.server.tools import Waiting

DEADLINE_SECONDS = 10

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("running", "named"), [(7, 7), (7, "7"), ("7", 7), ("seven", "seven")])
async def test_a_call_is_cancelled_by_its_id_and_not_answered(running: int | str, named: int | str) -> None:
    waiting, lines, answered = Waiting(), list[bytes](), list[int | str]()
    tools = ToolBox(replace(waiting.tool, interactive=False))
    fast = FastStdio(Publisher(tools, name="tests"), lines.append, answered.append)
    assert fast.took(initialize())
    lines.clear()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert fast.took(call("wait") | {"id": running})
        await waiting.started.wait()
        others: tuple[Any, ...] = (8, None, True, [7])
        for other in others:
            assert not fast.took(notification("notifications/cancelled", {"requestId": other}))
        assert not fast.took(call("wait") | {"id": named})  # the id is taken
        assert fast.took(notification("notifications/cancelled", {"requestId": named}))
        await waiting.cancelled.wait()
        await fast.ended()
        await checkpoint()
    assert (lines, answered) == ([], [1, running])

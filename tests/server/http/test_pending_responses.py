from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from bridge.server.http.sessions import Session
from bridge.server.http.sse import PendingResponses

pytestmark = pytest.mark.anyio

CALLS = 3


async def test_a_session_that_ends_owes_an_answer_to_each_of_several_requests_of_one_id() -> None:
    posting, posted = anyio.create_memory_object_stream[SessionMessage](CALLS)
    written, reading = anyio.create_memory_object_stream[SessionMessage](CALLS)
    answering = PendingResponses(posted, written, Session("", None, {}))
    for _ in range(CALLS):
        await posting.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=7, method="ping")))
        await answering.receive()
    answering.end()
    ends: list[Any] = []

    async def read_on() -> None:
        with pytest.raises(anyio.EndOfStream):
            await answering.receive()
        ends.append(reading.statistics().current_buffer_used)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_on)
            for _ in range(CALLS):
                await anyio.wait_all_tasks_blocked()
                assert ends == []
                await answering.writing.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=7, result={})))
    assert ends == [CALLS]
    for stream in (posting, posted, written, reading):
        stream.close()

"""Contents that are passed on while they are received."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.client.connection.running_call import Call, Deadlines
from bridge.client.transports.received_data import LARGE_BYTES
from bridge.client.transports.streamed_reads import StreamedRead
from bridge.protocol.peer import PendingRequest
from bridge.tools.context import InvocationContext
from tests.client.raw_http import Heard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Contents:
    """A caller that takes all parts at once."""

    def __init__(self) -> None:
        self.local: Any = str
        self.written: list[bytes] = []

    def begin(self, _: int | None) -> bool:
        return True

    async def write(self, text: bytes) -> None:
        self.written.append(text)


class Caller(Heard):
    """A channel of a caller that gets contents in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.contents = Contents()

    @property
    def contents_stream(self) -> Contents:
        return self.contents


async def test_others_run_while_contents_pass_that_are_there_already() -> None:
    items = b",".join([b'{"uri":"a:b","text":""}'] * 50_000)
    line = b'{"jsonrpc":"2.0","id":7,"result":{"contents":[%b]}}' % items
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def rest() -> AsyncIterator[bytes]:
        yield line[LARGE_BYTES:]

    caller, context = Caller(), InvocationContext()
    context.connect(caller)
    request = PendingRequest()
    request.id, request.method, request.version = 7, "resources/read", "2025-11-25"
    request.owner, request.stream = Call(Deadlines(), context, 10.0, 10.0), caller.contents_stream
    read = StreamedRead.begin(line[:LARGE_BYTES], len(line), request)
    assert read is not None
    task = asyncio.create_task(others())
    await read.run(rest())
    task.cancel()
    assert len(json.loads(b"".join(caller.contents_stream.written) + b"}")["contents"]) == 50_000
    assert turns >= (len(line) - LARGE_BYTES) // 65536

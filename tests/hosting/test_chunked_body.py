"""Responses in chunks: what is sent, and when a part waits for the client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from bridge.hosting.chunked_body import ChunkedBody
from bridge.server.http.responses import PlainResponse

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write_whole(self, data: bytes) -> None:
        self.written += data

    write = write_whole

    def pause_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self.is_closed = True


def made(transport: Any) -> tuple[ChunkedBody, FlowControl]:
    flow = FlowControl(transport)
    body = ChunkedBody(transport, flow, [], lambda: None)
    body.begin()
    return body, flow


async def test_a_part_waits_until_the_client_has_read_enough() -> None:
    transport = Transport()
    body, flow = made(transport)
    await body.write(b"first")
    flow.pause_writing()
    writing = asyncio.create_task(body.write(b"second"))
    for _ in range(3):  # turns of the loop
        await asyncio.sleep(0)
    assert not writing.done()
    flow.resume_writing()
    await writing
    body.end(PlainResponse(b"last", is_rest=True), keeps_alive=True)
    assert transport.written.endswith(b"\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n4\r\nlast\r\n0\r\n\r\n")
    assert not transport.is_closed


async def test_a_response_that_is_not_complete_has_no_last_chunk() -> None:
    transport = Transport()
    body, _ = made(transport)
    await body.write(b"first")
    body.end(PlainResponse(b"an error"), keeps_alive=True)
    assert transport.written.endswith(b"5\r\nfirst\r\n")
    assert transport.is_closed

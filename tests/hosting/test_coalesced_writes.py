"""Head and body of a response are written at once; nothing is lost or delayed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bridge.hosting.protocols import CoalescingTransport


class Recorder:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def joining() -> tuple[CoalescingTransport, Recorder]:
    recorder = Recorder()
    return CoalescingTransport(cast("asyncio.Transport", recorder)), recorder


async def passed() -> None:
    """Run one turn of the event loop."""
    turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)
    await turn


@pytest.mark.anyio
async def test_two_writes_in_a_row_are_one() -> None:
    transport, recorder = joining()
    transport.write(b"head,")
    transport.write(b"body")
    assert recorder.written == [b"head,body"]
    await passed()
    assert recorder.written == [b"head,body"]


@pytest.mark.anyio
async def test_what_is_written_alone_goes_when_the_loop_goes_on() -> None:
    transport, recorder = joining()
    transport.write(b"head")
    assert recorder.written == []
    await passed()
    assert recorder.written == [b"head"]
    transport.write(b"")
    await passed()
    assert recorder.written == [b"head"]


@pytest.mark.anyio
async def test_what_is_whole_is_written_at_once_after_what_is_kept() -> None:
    transport, recorder = joining()
    transport.write_whole(b"whole")
    assert recorder.written == [b"whole"]
    transport.write(b"head,")
    transport.write_whole(b"next")
    assert recorder.written == [b"whole", b"head,next"]
    await passed()
    assert recorder.written == [b"whole", b"head,next"]


@pytest.mark.anyio
async def test_what_is_kept_is_written_before_the_transport_closes() -> None:
    transport, recorder = joining()
    transport.write(b"last")
    transport.close()
    assert recorder.written == [b"last"]
    assert transport.is_closing()
    await passed()
    assert recorder.written == [b"last"]


@pytest.mark.anyio
async def test_what_was_kept_is_dropped_where_the_client_has_gone_meanwhile() -> None:
    transport, recorder = joining()
    transport.write(b"head")
    recorder.close()
    await passed()
    transport.close()
    assert recorder.written == []


@pytest.mark.anyio
async def test_what_is_written_after_the_client_has_gone_is_dropped() -> None:
    transport, recorder = joining()
    transport.write(b"head,")
    recorder.closed = True
    transport.write(b"body")
    transport.write_whole(b"whole")
    await passed()
    assert recorder.written == []

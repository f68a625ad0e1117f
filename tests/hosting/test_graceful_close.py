from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from bridge import tool
from bridge.hosting import sockets as sockets_module
from bridge.hosting.server import close_idle
from tests.hosting.test_http_server import DEADLINE_SECONDS, PROBE, answer_of, made, refused, terminate
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.hosting.server import HttpServer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": each}) for each in (False, True)]),
]


@asynccontextmanager
async def served(*tools: object) -> AsyncIterator[tuple[HttpServer, int]]:
    """Run a server until it is stopped; yields it and its port."""
    opened = anyio.Event()
    sockets = sockets_module.bind(sockets_module.resolve("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    server = made(opened.set, *tools)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.run_until_ended, sockets)
            await opened.wait()
            yield server, port
            terminate(server)


class AsItEnds:
    """Stands in for the drain of an app: connects and sends a request when the server is about to stop listening."""

    def __init__(self, port: int) -> None:
        self.connection = socket.socket()
        self._port = port

    def __len__(self) -> int:
        return 0

    async def __call__(self, _: float) -> None:
        await anyio.sleep_forever()

    async def answered(self) -> None:
        self.connection.connect(("127.0.0.1", self._port))
        self.connection.sendall(PROBE)


async def test_who_has_connected_when_the_server_stops_listening_is_answered() -> None:
    async with served() as (server, port):
        late = server._app.drain = AsItEnds(port)  # type: ignore[assignment]  # of a drain it has what is called here
        terminate(server)
        await refused(port)
        async with await SocketStream.from_socket(late.connection) as stream:
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")


async def test_an_idle_connection_is_closed_and_not_one_on_which_a_request_has_come() -> None:
    async with (
        served() as (server, port),
        await anyio.connect_tcp("127.0.0.1", port) as idle,
        await anyio.connect_tcp("127.0.0.1", port) as asking,
    ):
        for stream in (idle, asking):
            assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")
        os.write(asking.extra(SocketAttribute.raw_socket).fileno(), PROBE)
        await close_idle(server.server_state.connections)
        assert (await asking.receive()).startswith(b"HTTP/1.1 200")
        with pytest.raises(anyio.EndOfStream):
            await idle.receive()


async def test_a_connection_in_use_can_be_used_again_after_its_answer() -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        begun.set()
        await may_end.wait()
        return "done"

    async with served(hold) as (server, port), await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(modern("tools/call", name="hold").raw)
        await begun.wait()
        await close_idle(server.server_state.connections)
        may_end.set()
        assert b"done" in await stream.receive()
        assert (await answer_of(stream)).startswith(b"HTTP/1.1 200")

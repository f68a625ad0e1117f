from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import anyio
import pytest
import uvicorn

from bridge import ToolBox, tool
from bridge.hosting import server as http_server
from bridge.hosting import sockets as sockets_module
from bridge.hosting.serve import http_protocol
from bridge.hosting.server import HttpServer, Service
from bridge.server import http_app
from bridge.server.http.probes import HealthState, Probes
from bridge.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import SocketStream

DEADLINE_SECONDS = 60
PROBE = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def made(opened: Callable[[], None], *tools: object) -> HttpServer:
    app, operations = http_app(Server(ToolBox([add, *tools]), name="ending")), HealthState(is_held=True)
    config = uvicorn.Config(Probes(app, operations), http=http_protocol(), lifespan="on", ws="none", log_config=None)
    return HttpServer(config, Service(app=app, operations=operations, opened=opened))


def terminate(server: HttpServer) -> None:
    """Do the same as the signal, without the watchdog of the shutdown, which would end this process."""
    server.ending.first = signal.SIGTERM
    server.should_exit = True


async def answer_of(stream: SocketStream) -> bytes:
    await stream.send(PROBE)
    return await stream.receive()


async def refused(port: int) -> None:
    try:
        while True:
            async with await anyio.connect_tcp("127.0.0.1", port):
                pass
    except OSError:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": each}) for each in (False, True)])
async def test_who_was_accepted_last_is_answered_though_the_request_comes_after_the_end_of_listening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "_IDLE_SECONDS", 2 * DEADLINE_SECONDS)  # otherwise there would be a race
    opened = anyio.Event()
    sockets = sockets_module.bind(sockets_module.resolve("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    server = made(opened.set)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.run_until_ended, sockets)
            await opened.wait()
            async with (
                await anyio.connect_tcp("127.0.0.1", port) as last,
                await anyio.connect_tcp("127.0.0.1", port) as accepted_after_it,
            ):
                assert (await answer_of(accepted_after_it)).startswith(b"HTTP/1.1 200")
                terminate(server)
                await refused(port)
                assert (await answer_of(last)).startswith(b"HTTP/1.1 200")
            while server.server_state.connections:
                await anyio.lowlevel.checkpoint()
            serving.cancel_scope.cancel()
        await server.lifespan.shutdown()

"""A served tool that runs until it receives a request to end, and its server."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute
from mcp import Client, MCPError
from mcp.client.sse import sse_client

from bridge import InvocationContext, tool
from tests.processes import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import SocketStream
    from anyio.streams.memory import MemoryObjectReceiveStream

    from tests.processes import ServerProcess

SERVED = "tests/cli/draining.py"
DEADLINE_SECONDS = 60

ROUTES = {
    "modern": ("2026-07-28", "mcp"),
    "handshake": ("legacy", "mcp"),
    "SSE": ("legacy", "sse"),
}
"""Each route of a call over HTTP: the protocol, and the path."""


@tool
async def hold(port: int) -> str:
    """Report the call to a port, and return the text that is sent there."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"running")
        return (await stream.receive()).decode()


@tool
async def ask(context: InvocationContext) -> str:
    """Ask the client for a name."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await context.elicit("Who?", form)
    assert answer.content is not None
    return f"Hello {answer.content['name']}"


@tool
def stick(port: int) -> None:
    """Report the call to a port, and never return."""
    socket.create_connection(("127.0.0.1", port)).sendall(b"running")
    threading.Event().wait()


class Hearing:
    """Receives the reports of running calls.

    Args:
        port: The port that receives the reports.
        streams: Connections of the calls that reported.
    """

    def __init__(self, port: int, streams: MemoryObjectReceiveStream[SocketStream]) -> None:
        self.port = port
        self._streams = streams

    async def running(self) -> SocketStream:
        """Wait until a call runs; gives the connection that ends it."""
        stream = await self._streams.receive()
        assert await stream.receive() == b"running"
        return stream


@asynccontextmanager
async def heard() -> AsyncIterator[Hearing]:
    """Receive the reports of calls during the context."""
    sending, receiving = anyio.create_memory_object_stream["SocketStream"](10)

    async def keep(stream: SocketStream) -> None:
        async with stream:
            await sending.send(stream)
            await anyio.sleep_forever()

    async with (
        sending,
        receiving,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, keep)
        yield Hearing(listener.extra(SocketAttribute.local_port), receiving)
        tasks.cancel_scope.cancel()


class Held:
    """Calls that run until they receive a request to end.

    Args:
        client: Client that makes the calls.
        hearing: Receiver of their reports.
    """

    def __init__(self, client: Client, hearing: Hearing) -> None:
        self.hearing = hearing
        self.endings: list[tuple[str, str]] = []
        """Outcome of each call: ``result`` or ``error``, and its text."""
        self._client = client

    async def call(self) -> None:
        """Make a call, and wait for its end."""
        try:
            result = await self._client.call_tool("hold", {"port": self.hearing.port})
        except MCPError as error:
            self.endings.append(("error", str(error)))
        else:
            self.endings.append(("result", result.content[0].text))  # type: ignore[union-attr]  # it is a text


@asynccontextmanager
async def served(*options: str, target: str = SERVED, port: str = "0") -> AsyncIterator[ServerProcess]:
    """A server over HTTP, as a process."""
    words = ("-m", "bridge", "serve", target, "--transport", "http", "--port", port, *options)
    context = serving(*words)
    server = await anyio.to_thread.run_sync(context.__enter__)
    try:
        yield server
    finally:
        await anyio.to_thread.run_sync(partial(context.__exit__, None, None, None))


@asynccontextmanager
async def holding(server: ServerProcess, route: str) -> AsyncIterator[Held]:
    """Connect the official client to a server by a route, and receive the reports of its calls."""
    protocol, path = ROUTES[route]
    url = f"{server.origin}/{path}"
    async with heard() as hearing, Client(sse_client(url) if path == "sse" else url, mode=protocol) as client:
        await client.list_tools()  # otherwise each call requests the list after its result
        yield Held(client, hearing)


def port_of(server: ServerProcess) -> int:
    """Return the port of a server."""
    return int(server.origin.rpartition(":")[2])


async def refused(server: ServerProcess) -> None:
    """Wait until a server refuses connections."""
    try:
        while True:
            async with await anyio.connect_tcp("127.0.0.1", port_of(server)):
                pass
    except OSError:
        pass


async def ended(server: ServerProcess) -> int:
    """Wait for the end of a server; gives its exit code."""
    return await anyio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True)

"""Changes of tools are notified to clients of both eras; a client that does not read delays no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp_types import ToolListChangedNotification

from bridge.server import Server, http_app
from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.exchange import LocalOrigin
from bridge.server.observed import dispatch_of
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, open_session
from tests.server.memory import memory
from tests.server.tools import ADD, GREET, made

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.client import IncomingMessage

DEADLINE_SECONDS = 60

pytestmark = pytest.mark.anyio


PROBE = made("probe", ADD.executor.execute)  # type: ignore[arg-type]  # never called
OPENED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class News:
    """Counts the notifications to a client."""

    def __init__(self) -> None:
        self.count = 0
        self.came = anyio.Event()

    async def __call__(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.count += 1
            self.came.set()

    async def start(self, tools: ToolBox) -> None:
        """Wait until the client receives notifications: over HTTP it opens the stream for them after the handshake."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while not self.came.is_set():
                tools.add(PROBE)
                tools.remove(PROBE.name)
                with anyio.move_on_after(0.1):
                    await self.came.wait()
        self.came = anyio.Event()

    async def next(self) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await self.came.wait()
        self.came = anyio.Event()


async def add_in_thread(tools: ToolBox) -> None:
    await anyio.to_thread.run_sync(tools.add, GREET)


@pytest.mark.parametrize("transport", ["memory", "http", "sse"])
async def test_a_session_of_the_handshake_era_is_told(serving: Callable[..., str], transport: str) -> None:
    tools = ToolBox(ADD)
    publisher = Server(tools, name="tests")
    origin = serving(http_app(publisher))
    server: Any = {"memory": memory(publisher), "http": f"{origin}/mcp", "sse": sse_client(f"{origin}/sse")}[transport]
    news = News()
    async with Client(server, mode="legacy", message_handler=news) as client:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True
        await news.start(tools)
        await add_in_thread(tools)
        await news.next()
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "greet"]
        tools.remove("add")
        await news.next()
        assert [tool.name for tool in (await client.list_tools()).tools] == ["greet"]


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_subscription_of_the_modern_era_is_told(serving: Callable[..., str], transport: str) -> None:
    tools = ToolBox(ADD)
    publisher = Server(tools, name="tests")
    server: Any = memory(publisher) if transport == "memory" else serving(http_app(publisher)) + "/mcp"
    async with Client(server) as client:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed is True
        async with client.listen(tools_list_changed=True) as subscription:
            await add_in_thread(tools)
            with anyio.fail_after(DEADLINE_SECONDS):
                async for event in subscription:
                    assert type(event).__name__ == "ToolsListChanged"
                    break
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "greet"]


async def test_a_session_that_has_ended_is_forgotten(serving: Callable[..., str]) -> None:
    tools = ToolBox(ADD)
    publisher = Server(tools, name="tests")
    url = serving(http_app(publisher)) + "/mcp"

    def open_and_delete() -> None:
        with httpx.Client() as client:
            headers = open_session(client, url)
            # A repeated request does not count a session twice.
            client.post(url, json=OPENED, headers=headers).raise_for_status()
            client.post(url, json=call("add", {"a": 1, "b": 2}), headers=headers).raise_for_status()
            assert len(publisher.changes) == 1
            client.delete(url, headers=headers).raise_for_status()

    await anyio.to_thread.run_sync(open_and_delete)
    with anyio.fail_after(DEADLINE_SECONDS):
        while len(publisher.changes):
            await anyio.lowlevel.checkpoint()


async def test_a_client_that_greets_again_and_again_is_told_once() -> None:
    publisher = Server(ToolBox(ADD), name="tests")
    written: list[bytes] = []
    connection = StreamConnection(publisher, dispatch_of(publisher), LocalOrigin(EVERYTHING), written.append)
    async with connection.running():
        for number in range(3):
            connection.receive(initialize() | {"id": number})
            connection.receive(OPENED)
        assert len(publisher.changes) == 1
        publisher.tools.add(GREET)
        await anyio.wait_all_tasks_blocked()
    told = [json.loads(each).get("method") for each in written]
    assert told == [None, None, None, "notifications/tools/list_changed"]
    assert len(publisher.changes) == 0


async def test_a_session_that_does_not_read_holds_up_nobody() -> None:
    tools, news = ToolBox(ADD), News()
    publisher = Server(tools, name="tests")
    written, waiting, reads = list[bytes](), list[bool](), anyio.Event()

    async def drained() -> None:
        waiting.append(True)
        await reads.wait()

    slow = StreamConnection(publisher, dispatch_of(publisher), LocalOrigin(EVERYTHING), written.append, drained)
    async with slow.running(), Client(memory(publisher), mode="legacy", message_handler=news) as client:
        slow.receive(initialize())
        slow.receive(OPENED)
        assert json.loads(written.pop())["result"]["protocolVersion"] == "2025-11-25"
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(publisher.changes) < 2:
                await anyio.lowlevel.checkpoint()
        for name in map(str, range(50)):
            tools.add(made(name, ADD.executor.execute))  # type: ignore[arg-type]  # never called
            await news.next()
        assert (len(waiting), len(written)) == (1, 1)
        # One was sent at the first change; all later ones are a second.
        reads.set()
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(written) < 2:
                await anyio.lowlevel.checkpoint()
        await client.list_tools()
        assert [json.loads(each)["method"] for each in written] == ["notifications/tools/list_changed"] * 2

"""Opening of servers, and the lists, names and selection of their tools."""

from __future__ import annotations

import logging
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    DefinitionError,
    InvocationContext,
    ServerConfig,
    StdioTransport,
    ToolAnnotations,
    ToolBox,
    ToolSpecification,
    UserMessage,
    tool,
)
from bridge.client import Connection, ConnectionState, McpToolProvider, MemoryTransport, RemoteName, parse_config
from bridge.errors import ServerUnavailableError
from bridge.server.server import Server
from bridge.tools import ToolProviderRequest
from tests.client.conftest import stdio_config
from tests.client.scripted import listed, scripted_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

NOWHERE = StdioTransport("there-is-no-such-command")


def memory_config(name: str, *tools: object, **settings: Any) -> ServerConfig:
    """A server in this process."""
    server = Server(ToolBox(*tools), name=name)
    return replace(ServerConfig(name=name, transport=MemoryTransport(server)), **settings)


@asynccontextmanager
async def provided(*servers: ServerConfig | Connection, **options: Any) -> AsyncIterator[McpToolProvider]:
    async with McpToolProvider(servers, **options) as provider:
        yield provider


def names(provider: McpToolProvider) -> list[str]:
    return [each.name for each in provider.tools]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def search(text: str) -> str:
    """Search."""
    return f"found {text}"


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_the_tools_of_all_servers_are_here_and_are_called_where_they_live(pin: str) -> None:
    one, two = memory_config("one", add, protocol=pin), stdio_config(name="two", protocol=pin, exclude=("add",))
    async with provided(one, two) as provider:
        assert (await provider.call("one_add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        pid = (await provider.call("two_pid")).text
        assert (await provider.call("two_pid")).structured_content == {"result": int(pid)}
        assert provider.origins["two_pid"] == RemoteName("two", "pid")


async def test_servers_are_opened_all_at_once() -> None:
    """Servers each of which waits for the other two before its handshake."""
    gathering = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as gate:
    gate.recv(1)
"""
    waiting: list[anyio.abc.SocketStream] = []

    async def open_the_gate(stream: anyio.abc.SocketStream) -> None:
        waiting.append(stream)
        if len(waiting) == 3:
            for each in waiting:
                await each.send(b"!")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as gate, anyio.create_task_group() as tasks:
        tasks.start_soon(gate.serve, open_the_gate)
        port = gate.extra(anyio.abc.SocketAttribute.local_port)
        configs = []
        for number in range(3):
            config = scripted_config([listed(f"t{number}")], name=f"s{number}")
            assert isinstance(config.transport, StdioTransport)
            code = gathering + config.transport.args[1]
            configs.append(replace(config, transport=StdioTransport(sys.executable, args=("-c", code, str(port)))))
        async with provided(*configs) as provider:
            assert names(provider) == ["s0_t0", "s1_t1", "s2_t2"]
        for stream in waiting:
            await stream.aclose()
        tasks.cancel_scope.cancel()


async def test_a_server_that_is_not_there_costs_only_its_own_tools(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bridge.client"):
        async with provided(ServerConfig(name="gone", transport=NOWHERE), memory_config("one", add)) as provider:
            gone, one = provider.status()
    assert (gone.name, gone.is_listed, gone.tools) == ("gone", False, ())
    assert gone.connection.state is ConnectionState.FAILED
    assert "command not found: 'there-is-no-such-command'" in str(gone.problem)
    assert (one.name, one.is_listed, one.tools, one.problem) == ("one", True, ("one_add",), None)
    assert one.connection.state is ConnectionState.READY
    assert "the server 'gone' is unavailable" in caplog.text


async def test_an_unknown_tool_names_the_servers_that_could_not_be_reached() -> None:
    missing = "not available: the server 'gone', starting: command not found: 'there-is-no-such-command'"
    async with provided(ServerConfig(name="gone", transport=NOWHERE), memory_config("one", add)) as provider:
        assert (result := await provider.call("gone_search", text="x")).is_error
        assert result.text == f"there is no tool named 'gone_search'; {missing}"
        hint = "did you mean 'one_add'?"
        assert (await provider.call("add", a=1, b=2)).text == f"there is no tool named 'add'; {hint}; {missing}"


async def test_a_server_whose_entry_cannot_be_used_costs_only_its_own_tools() -> None:
    config = parse_config({"mcpServers": {"bad": {"url": "${UNSET}"}, "other": {"command": "x"}}}, environ={})
    bad = config.servers["bad"]
    async with provided(bad, memory_config("one", add)) as provider:
        assert names(provider) == ["one_add"]
        status, _ = provider.status()
    assert status.connection.state is ConnectionState.FAILED
    assert "its configuration cannot be used: 'url': the variable 'UNSET' is not set" in str(status.problem)
    with pytest.raises(ServerUnavailableError, match="UNSET"):
        async with provided(replace(bad, required=True), memory_config("one", add)):
            pytest.fail("it was opened")


async def test_without_a_required_server_there_is_nothing() -> None:
    fine = Connection(memory_config("one", add))
    with pytest.raises(ServerUnavailableError, match="command not found:") as caught:
        async with provided(fine, ServerConfig(name="gone", transport=NOWHERE, required=True)):
            pytest.fail("it was opened")
    assert caught.value.server == "gone"
    assert fine.state is ConnectionState.CLOSED


async def test_a_required_server_whose_tools_cannot_be_listed_is_not_there() -> None:
    broken = scripted_config([{"name": "f", "inputSchema": {"type": "object"}}], required=True)
    endless = replace(broken, transport=StdioTransport(sys.executable, args=("-c", "raise SystemExit(3)")))
    with pytest.raises(ServerUnavailableError, match="exit code: 3"):
        async with provided(endless):
            pytest.fail("it was opened")


async def test_nobody_has_to_wait_for_the_servers() -> None:
    provider = McpToolProvider([memory_config("one", add)])
    came = anyio.Event()
    provider.tools.on_change(came.set)
    await provider.open(wait=False)
    await came.wait()
    assert names(provider) == ["add"]
    await provider.aclose()


async def test_a_closed_provider_can_be_opened_again() -> None:
    provider = McpToolProvider([memory_config("one", add)])
    for _ in range(2):
        async with provider:
            assert (await provider.call("add", {"a": 1, "b": 2})).text == "3"
        after = await provider.call("add", {"a": 1, "b": 2})
        assert (after.is_error, after.text) == (True, "the server 'one', calling 'add': the connection is not open")


async def test_a_provider_is_closed_from_any_task_and_more_than_once() -> None:
    provider = McpToolProvider([memory_config("one", add), memory_config("two", search)])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.open)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(provider.aclose)
        tasks.start_soon(provider.aclose)
    assert {status.connection.state for status in provider.status()} == {ConnectionState.CLOSED}


async def test_a_connection_that_was_open_before_stays_open() -> None:
    async with Connection(memory_config("one", add)) as connection:
        async with provided(connection) as provider:
            assert names(provider) == ["add"]
        assert connection.state is ConnectionState.READY


async def test_two_servers_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two servers are named 'one'"):
        McpToolProvider([memory_config("one", add), memory_config("one", search)])


async def test_servers_are_added_together_or_not_at_all() -> None:
    async with provided(memory_config("one", add)) as provider:
        with pytest.raises(DefinitionError, match="two servers are named 'one'"):
            await provider.add([memory_config("two", add), memory_config("one", add)])
        assert list(provider.connections) == ["one"]
        await provider.add(memory_config("two", add))
        assert list(provider.connections) == ["one", "two"]


# --- what is listed --------------------------------------------------------------------------------------------------


async def test_a_specification_is_what_the_server_lists_from_all_pages() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "x-own": [1, {"$ref": "#"}]}
    full = listed(
        "full",
        title="Full",
        description="All of it.",
        inputSchema=schema,
        outputSchema={"type": "object", "$defs": {"n": {"const": None}}},
        annotations={"readOnlyHint": True, "idempotentHint": False},
        icons=[{"src": "https://example.org/icon.png"}],
        _meta={"team": "x", "deep": {"a": None}},
    )
    async with provided(scripted_config([listed("a"), full, listed("b")], page_size=1)) as provider:
        assert names(provider) == ["a", "full", "b"]
        assert provider.tools.get("full").specification == ToolSpecification(
            name="full",
            title="Full",
            description="All of it.",
            parameters=schema,
            output_schema={"type": "object", "$defs": {"n": {"const": None}}},
            annotations=ToolAnnotations(read_only=True, idempotent=False),
            icons=({"src": "https://example.org/icon.png"},),
            metadata={"team": "x", "deep": {"a": None}},
        )
        assert provider.tools.get("full").interactive
        assert provider.tools.get("full").source == "server 'child'"


async def test_a_tool_that_is_listed_twice_is_here_once_and_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tools = [listed("a", description="first"), listed("a", description="second"), listed("b")]
    async with provided(scripted_config(tools)) as provider:
        assert [(each.name, each.specification.description) for each in provider.tools] == [("a", "first"), ("b", None)]
        (status,) = provider.status()
    assert status.skipped == ("the tool 'a' is listed twice",)
    assert "server 'child': left out: the tool 'a' is listed twice" in caplog.text


async def test_tools_are_provided_for_an_invocation() -> None:
    async with provided(memory_config("one", add)) as provider:
        assert provider.is_dynamic
        request = ToolProviderRequest(user_message=UserMessage(()), context=InvocationContext())
        assert list(await provider.provide_tools(request)) == list(provider.tools)


# --- names and choice ------------------------------------------------------------------------------------------------

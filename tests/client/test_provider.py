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
    ConnectionState,
    DefinitionError,
    InvocationContext,
    MemoryTransport,
    ServerConfig,
    ServersConfig,
    ServerUnavailableError,
    StdioTransport,
    ToolAnnotations,
    ToolBox,
    ToolProviderRequest,
    ToolSpecification,
    UserMessage,
    tool,
)
from bridge.client import Connection, McpToolProvider, RemoteExecutor, RemoteName, parse_config
from bridge.server.publisher import Publisher
from tests.client.conftest import python_config, stdio_config
from tests.client.scripted import listed, scripted_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

NOWHERE = StdioTransport("there-is-no-such-command")


def memory_config(name: str, *tools: object, **settings: Any) -> ServerConfig:
    """A server in this process."""
    publisher = Publisher(ToolBox(*tools), name=name)
    return replace(ServerConfig(name=name, transport=MemoryTransport(publisher.server)), **settings)


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


async def test_with_several_servers_each_name_begins_with_its_servers_whoever_is_up() -> None:
    gone = ServerConfig(name="gone", transport=NOWHERE)
    async with provided(memory_config("one", add), gone) as provider:
        assert names(provider) == ["one_add"]
    async with provided(memory_config("one", add)) as provider:
        assert names(provider) == ["add"]
    async with provided(memory_config("one", add), prefix="always") as provider:
        assert names(provider) == ["one_add"]


async def test_a_server_cannot_take_over_a_name_that_belongs_to_another() -> None:
    good, evil = memory_config("good", tool(name="send")(lambda: "good")), None
    for named in ("good_send", "send"):
        evil = memory_config("evil", tool(name=named)(lambda: "evil"))
        for prefix in (None, "always", "on_collision"):
            async with provided(good, evil, prefix=prefix) as provider:
                theirs = [name for name in names(provider) if provider.origins[name].server == "evil"]
                assert theirs == [f"evil_{named}"]
                ours = [name for name in names(provider) if name not in theirs]
                assert ours == ["send" if (named, prefix) == ("good_send", "on_collision") else "good_send"]
                assert (await provider.call(ours[0])).text == "good"


async def test_what_may_not_have_its_own_name_is_left_out_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with provided(memory_config("one", add), memory_config("two", add, search), prefix="never") as provider:
        assert names(provider) == ["search"]
        one, two = provider.status()
    told = "the name of the tool 'add' is taken or begins with another server's prefix, and prefix is 'never'"
    assert one.skipped == two.skipped == (told,)
    assert f"server 'one': left out: {told}" in caplog.text


async def test_a_configuration_says_when_the_servers_name_stands_first() -> None:
    servers = [replace(memory_config(name, each), prefixing="on_collision") for name, each in (("x", add), ("y", add))]
    servers.append(replace(memory_config("z", search), prefixing="on_collision"))
    async with provided(*servers) as provider:
        assert names(provider) == ["x_add", "y_add", "search"]
    async with provided(*servers, prefix="always") as provider:
        assert names(provider) == ["x_add", "y_add", "z_search"]


async def test_no_remote_tool_gets_the_name_of_a_local_one() -> None:
    local = ToolBox(add)
    async with provided(memory_config("one", add, search), local=local) as provider:
        assert names(provider) == ["one_add", "search"]
        local.remove("add")
        assert names(provider) == ["add", "search"]
        local.add(search)
        assert names(provider) == ["add", "one_search"]


async def test_a_mode_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(
        DefinitionError, match="prefix must be 'always', 'on_collision', 'never' or None, not 'sometimes'"
    ):
        McpToolProvider([], prefix="sometimes")  # type: ignore[arg-type]  # the mistake


async def test_tools_that_collide_are_named_after_their_servers_and_still_call_the_right_one() -> None:
    other = tool(name="search")(lambda: "the other")
    for order in (1, -1):
        servers = [memory_config("one", search, add), memory_config("two", other)][::order]
        async with provided(*servers, prefix="on_collision") as provider:
            assert sorted(names(provider)) == ["add", "one_search", "two_search"]
            assert (await provider.call("one_search", {"text": "it"})).text == "found it"
            assert (await provider.call("two_search")).text == "the other"
            executor = provider.tools.get("two_search").executor
            assert isinstance(executor, RemoteExecutor)
            assert executor.tool == "search"


async def test_a_configured_prefix_stands_before_the_names() -> None:
    servers = memory_config("one", add, prefix="math."), memory_config("two", search)
    async with provided(*servers, prefix="always") as provider:
        assert names(provider) == ["math.add", "two_search"]
    async with provided(*servers) as provider:
        assert names(provider) == ["math.add", "two_search"]


async def test_tools_are_taken_by_the_configuration_and_by_a_filter() -> None:
    tools = [listed("read_file"), listed("write_file"), listed("read_secret"), listed("grep", description="hidden")]
    config = scripted_config(tools, include=("read_*", "grep"), exclude=("*secret",))
    async with provided(config, filter=lambda server, it: (server, it.description) != ("child", "hidden")) as provider:
        assert names(provider) == ["read_file"]


async def test_a_mapper_names_the_tools() -> None:
    servers = memory_config("one", add, search), memory_config("two", add)
    async with provided(*servers, name_mapper=lambda server, it: f"{it.name}@{server}"[:6]) as provider:
        assert provider.origins == {
            "add_on": RemoteName("one", "add"),
            "search": RemoteName("one", "search"),
            "add_tw": RemoteName("two", "add"),
        }


async def test_a_mapper_that_gives_no_name_is_a_mistake() -> None:
    with pytest.raises(DefinitionError, match="the name mapper returned '' for 'add' of the server 'one'"):
        async with provided(memory_config("one", add), name_mapper=lambda server, it: ""):
            pytest.fail("it was opened")


async def test_names_with_forbidden_characters_and_of_any_length_are_made_safe() -> None:
    long = "x" * 200
    config = scripted_config([listed("get user"), listed(long)], {"get user": {"content": [], "isError": True}})
    async with provided(config) as provider:
        assert names(provider)[0] == "get_user"
        assert len(names(provider)[1]) == 128
        assert (await provider.call("get_user")).is_error
        assert not (await provider.call(names(provider)[1])).is_error


@pytest.mark.parametrize("trusted", [False, True])
async def test_annotations_count_where_the_server_is_trusted_under_any_name(trusted: bool) -> None:
    config = scripted_config([listed("look", annotations={"readOnlyHint": True})], prefix="my_", trusted=trusted)
    async with provided(config) as provider:
        tool = provider.tools.get("my_look")
        assert (tool.trusted, tool.trusted_annotations.read_only) == (trusted, True if trusted else None)


async def test_a_configuration_is_as_good_as_its_servers() -> None:
    config = ServersConfig(servers={"one": memory_config("one", add)})
    async with McpToolProvider(config) as provider:
        assert names(provider) == ["add"]


async def test_a_server_that_dies_in_the_middle_of_its_greeting_says_its_last_words() -> None:
    dying = python_config("import sys; sys.exit('no database')", name="db")
    async with provided(dying) as provider:
        (status,) = provider.status()
    assert status.problem is not None
    assert status.problem.failure.last_words == ("no database",)

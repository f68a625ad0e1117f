"""Changes while a provider is open: lists change, servers are lost and return."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import InvocationContext, ServerConfig, StdioTransport, ToolBox, UserMessage, tool, tools_from
from bridge.client import ConnectionState, HttpTransport, McpToolProvider, MemoryTransport, ReconnectPolicy, ToolsChange
from bridge.errors import DefinitionError, ServerUnavailableError
from bridge.server.server import Server
from bridge.tools import ToolProviderRequest
from tests.client.clock import Clock
from tests.client.conftest import DEADLINE_SECONDS, stdio_config
from tests.client.connection.test_processes import until
from tests.client.foreign import ForeignServer
from tests.client.test_provider import NOWHERE, memory_config, names, provided

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.conftest import RemoteServer
    from tests.client.reports import Reports

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


class Changes:
    """Changes of a provider, which can be awaited."""

    def __init__(self, provider: McpToolProvider) -> None:
        self.seen: list[ToolsChange] = []
        self._provider = provider
        self._came = anyio.Event()
        self.stop = provider.on_change(self._take)

    def _take(self, change: ToolsChange) -> None:
        self.seen.append(change)
        self._came.set()
        self._came = anyio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._came.wait()


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def sub(a: int, b: int) -> int:
    """Subtract one number from another."""
    return a - b


request = ToolProviderRequest(user_message=UserMessage(()), context=InvocationContext())


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pin", ["auto", "legacy"])
async def test_tools_that_a_server_adds_and_removes_come_and_go(pin: str) -> None:
    box = ToolBox(add)
    transport = MemoryTransport(Server(box, name="one"))
    async with provided(ServerConfig(name="one", transport=transport, protocol=pin)) as provider:  # type: ignore[arg-type]  # a parameter of the test
        changes = Changes(provider)
        box.add(sub)
        await changes.until(lambda: "sub" in provider.tools)
        assert (await provider.call("sub", {"a": 3, "b": 1})).text == "2"
        box.remove("add")
        await changes.until(lambda: "add" not in provider.tools)
    assert [each for each in changes.seen if each] == [ToolsChange(added=("sub",)), ToolsChange(removed=("add",))]


async def test_a_tool_that_is_described_otherwise_has_changed() -> None:
    box = ToolBox(add)
    async with provided(ServerConfig(name="one", transport=MemoryTransport(Server(box, name="one")))) as provider:
        changes = Changes(provider)
        before = provider.tools.get("add")
        box.replace(tools_from(tool("Add up.", name="add")(lambda a, b: a + b)))
        await changes.until(lambda: bool(changes.seen))
        assert changes.seen == [ToolsChange(changed=("add",))]
        assert provider.tools.get("add") != before


async def test_a_thousand_changes_are_followed_to_the_last() -> None:
    box = ToolBox(add)
    async with provided(ServerConfig(name="one", transport=MemoryTransport(Server(box, name="one")))) as provider:
        changes = Changes(provider)
        for _ in range(500):
            box.add(sub)
            box.remove("sub")
        box.add(sub)
        await changes.until(lambda: names(provider) == ["add", "sub"])


async def test_a_list_that_expires_is_asked_for_again_but_not_too_often() -> None:
    clock = Clock()
    server = ForeignServer("a", ttl_ms=10_000)
    reconnect = ReconnectPolicy(wait=clock.wait, health_check_seconds=77)
    async with provided(server.config(), reconnect=reconnect) as provider:
        changes = Changes(provider)
        server.names.append("b")
        await clock.elapse(30.0)
        await changes.until(lambda: names(provider) == ["a", "b"])
        await clock.sleeping(30.0)
    assert server.lists == 2


async def test_whoever_asks_for_tools_gets_no_list_that_has_expired() -> None:
    server = ForeignServer("a", ttl_ms=0)
    async with provided(server.config()) as provider:
        server.names.append("b")
        assert [each.name for each in await provider.provide_tools(request)] == ["a", "b"]
        server.ttl_ms = 3_600_000
        await provider.provide_tools(request)
        server.names.append("c")
        assert [each.name for each in await provider.provide_tools(request)] == ["a", "b"]
        await provider.refresh()
        assert names(provider) == ["a", "b", "c"]


async def test_a_list_that_cannot_be_had_is_asked_for_again_and_the_old_one_stays() -> None:
    clock = Clock()
    server = ForeignServer("a")
    reconnect = ReconnectPolicy(wait=clock.wait, health_check_seconds=77, first_delay_seconds=5, jitter=lambda: 1.0)
    async with provided(server.config(), reconnect=reconnect) as provider:
        changes = Changes(provider)
        server.fails = True
        await provider.refresh()
        assert names(provider) == ["a"]
        assert provider.status()[0].problem is not None
        server.fails, server.names = False, ["a", "b"]
        await clock.elapse(5)
        await changes.until(lambda: names(provider) == ["a", "b"])
        assert provider.status()[0].problem is None


async def test_a_listener_that_fails_keeps_nobody_else_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    async with provided(memory_config("one", add)) as provider:
        provider.on_change(lambda change: 1 / 0)  # type: ignore[arg-type]  # it fails
        changes = Changes(provider)
        await provider.add(memory_config("two", sub))
        assert changes.seen == [ToolsChange(added=("one_add", "two_sub"), removed=("add",))]
        assert "a listener failed" in caplog.text
        changes.stop()
        await provider.remove("two")
        assert len(changes.seen) == 1


# --- servers ---------------------------------------------------------------------------------------------------------


async def test_a_filter_may_change_and_listeners_are_told() -> None:
    async with McpToolProvider(memory_config("one", add, sub)) as provider:
        changes = Changes(provider)
        followed = provider.tools.transformed(tuple)
        provider.set_filter(lambda _, specification: specification.name != "add")
        assert names(provider) == [each.name for each in followed] == ["sub"]

        def fail(*_: object) -> bool:
            raise KeyError("no")

        with pytest.raises(KeyError):
            provider.set_filter(fail)
        await provider.refresh()
        assert names(provider) == ["sub"]
        provider.set_filter(None)
        assert changes.seen == [ToolsChange(removed=("add",)), ToolsChange(added=("add",))]


async def test_servers_are_added_and_removed_while_it_runs() -> None:
    async with provided(memory_config("one", add)) as provider:
        await provider.add(memory_config("two", add, sub))
        assert sorted(names(provider)) == ["one_add", "two_add", "two_sub"]
        two = provider.connections["two"]
        await provider.remove("two")
        assert names(provider) == ["add"]
        assert two.state is ConnectionState.CLOSED


async def test_a_required_server_that_cannot_be_added_is_not() -> None:
    async with provided(memory_config("one", add)) as provider:
        with pytest.raises(ServerUnavailableError):
            await provider.add([ServerConfig(name="two", transport=NOWHERE, required=True), memory_config("x", sub)])
        assert names(provider) == ["add"]
        assert list(provider.connections) == ["one"]


async def test_servers_that_cannot_be_named_are_not_added() -> None:
    async with McpToolProvider(
        memory_config("one", add),
        name_mapper=lambda server, spec: spec.name if server == "one" else 5,  # type: ignore[arg-type,return-value]
    ) as provider:
        with pytest.raises(DefinitionError):
            await provider.add(memory_config("two", sub))
        assert names(provider) == ["add"]
        assert list(provider.connections) == ["one"]
        await provider.refresh()
        assert names(provider) == ["add"]


async def test_a_server_that_is_unknown_cannot_be_removed() -> None:
    async with provided(memory_config("one", add)) as provider:
        with pytest.raises(DefinitionError, match="there is no server 'two'; servers: one"):
            await provider.remove("one", "two")
        assert names(provider) == ["add"]


async def test_of_a_new_configuration_only_what_changed_is_opened_again() -> None:
    one, two, three = memory_config("one", add), memory_config("two", sub), ForeignServer("x").config()
    async with provided(one, two) as provider:
        before = provider.connections
        changed = replace(two, prefix="minus_")
        await provider.reconfigure([changed, three, one])
        assert names(provider) == ["minus_sub", "foreign_x", "one_add"]
        assert provider.connections["one"] is before["one"]
        await until(before["two"], ConnectionState.CLOSED)
        await provider.reconfigure([])
        assert names(provider) == []


async def test_tools_that_stay_keep_their_names_while_other_servers_are_replaced() -> None:
    one, two = memory_config("one", add), memory_config("two", sub)
    async with provided(one, two) as provider:
        seen: list[list[str]] = []
        provider.tools.on_change(lambda: seen.append(names(provider)))
        await provider.reconfigure([one, replace(two, timeout_seconds=5)])
        replaced = provider.connections["two"]
    assert [each for each in seen if each != ["one_add", "two_sub"]] == []
    assert replaced.config.timeout_seconds == 5


async def test_a_call_goes_on_while_its_server_is_replaced(reports: Reports) -> None:
    config = stdio_config()
    async with provided(config) as provider, anyio.create_task_group() as tasks:
        before = provider.connections["served"]
        tasks.start_soon(before.call_tool, "hold", {"port": reports.port})
        await reports.wait_for("started")
        await provider.reconfigure(replace(config, timeout_seconds=5))
        after = provider.connections["served"]
        assert after is not before
        pids = [(await each.call_tool("pid", {}))["structuredContent"]["result"] for each in (before, after)]
        assert pids[0] != pids[1]
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        await until(before, ConnectionState.CLOSED)


async def test_a_new_configuration_with_a_required_server_that_is_not_there_changes_nothing() -> None:
    one, two = memory_config("one", add), memory_config("two", sub)
    async with provided(one, two) as provider:
        before = dict(provider.connections)
        missing = ServerConfig(name="two", transport=StdioTransport("there-is-no-such-command"), required=True)
        with pytest.raises(ServerUnavailableError, match="command not found"):
            await provider.reconfigure([memory_config("three", add), missing])
        with pytest.raises(DefinitionError, match="two servers are named 'two'"):
            await provider.reconfigure([two, two])
        assert names(provider) == ["one_add", "two_sub"]
        assert dict(provider.connections) == before
        assert await provider.connections["one"].call_tool("add", {"a": 1, "b": 2})


async def test_a_server_that_went_away_keeps_its_tools_and_says_that_it_is_not_there(remote: RemoteServer) -> None:
    config = ServerConfig(name="far", transport=HttpTransport(remote.url), connect_wait_seconds=0.2)
    async with provided(config, memory_config("one", sub)) as provider:
        before, states = names(provider), States(provider)
        remote.kill()
        result = await provider.call("far_add", {"a": 1, "b": 2})
        assert result.is_error
        assert result.text.startswith("the server 'far', calling 'add': it is not available: ")
        assert "127.0.0.1" not in result.text
        assert names(provider) == before
        assert (await provider.call("one_sub", {"a": 1, "b": 2})).text == "-1"
        await remote.start()
        await states.until(lambda: ("far", ConnectionState.READY) in states.seen)
        assert (await provider.call("far_add", {"a": 1, "b": 2})).text == "3"


async def test_a_server_that_comes_later_brings_its_tools(remote: RemoteServer) -> None:
    remote.kill()
    async with provided(ServerConfig(name="far", transport=HttpTransport(remote.url))) as provider:
        assert names(provider) == []
        changes = Changes(provider)
        await remote.start()
        await changes.until(lambda: "add" in provider.tools)


class States:
    """States of a provider's servers, which can be awaited."""

    def __init__(self, provider: McpToolProvider) -> None:
        self.seen: list[Any] = []
        self._came = anyio.Event()
        provider.on_state(self._take)

    def _take(self, server: str, state: ConnectionState) -> None:
        self.seen.append((server, state))
        self._came.set()
        self._came = anyio.Event()

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await self._came.wait()

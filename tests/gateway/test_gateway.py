"""Real server processes behind a gateway: if one ends, only its tools fail, and no call runs twice."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import pytest

from bridge import InvocationContext, ToolBox, ToolExecutionRequest, tool
from bridge.client import ConnectionState, HttpTransport, ReconnectPolicy, ServerConfig, StdioTransport
from bridge.errors import DefinitionError, ServerUnavailableError
from bridge.gateway import Gateway
from tests.client.conftest import RemoteServer, remote, reports, stdio_config
from tests.gateway.between import between, server_config, text_of
from tests.server.tools import made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client import Connection
    from bridge.types import Json
    from tests.client.reports import Reports

__all__ = ["remote", "reports"]

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
DEADLINE_SECONDS = 30


def http_config(server: RemoteServer, **settings: Any) -> ServerConfig:
    return ServerConfig(name="remote", transport=HttpTransport(server.url, kind="http"), **settings)


def named(name: str, answer: str) -> Any:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        return answer

    return made(name, body)


async def answer(connection: Connection, name: str, **arguments: Any) -> str:
    result: Json = await connection.call_tool(name, arguments)
    assert not result.get("isError"), result
    return text_of(result)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefix", "only"), [(None, "one_only"), ("on_collision", "only")])
async def test_tools_have_their_servers_name_before_theirs(prefix: Any, only: str) -> None:
    one = server_config(named("add", "one"), named("only", "one"), name="one")
    two = server_config(named("add", "two"), name="two")
    async with between(one, two, prefix=prefix) as (gateway, connection):
        assert [each.name for each in gateway.tools] == ["one_add", only, "two_add"]
        assert await answer(connection, "one_add") == "one"
        assert await answer(connection, "two_add") == "two"


async def test_local_tools_keep_their_names_and_remote_ones_make_way() -> None:
    local = ToolBox(named("add", "here"))
    async with between(server_config(named("add", "there"), name="far"), local=local) as (gateway, connection):
        assert [each.name for each in gateway.tools] == ["add", "far_add"]
        assert await answer(connection, "add") == "here"
        assert await answer(connection, "far_add") == "there"


async def test_changes_of_local_tools_are_followed() -> None:
    local = ToolBox()
    async with between(server_config(named("add", "there"), name="far"), local=local) as (gateway, connection):
        assert [each.name for each in gateway.tools] == ["add"]
        local.add(named("add", "here"))
        assert [each.name for each in gateway.tools] == ["add", "far_add"]
        assert await answer(connection, "far_add") == "there"
        local.remove("add")
        assert [each.name for each in gateway.tools] == ["add"]
        assert await answer(connection, "add") == "there"


async def test_a_local_tool_keeps_a_name_that_begins_with_a_servers() -> None:
    servers = [server_config(named("add", name), name=name) for name in ("one", "two")]
    async with between(*servers, local=ToolBox(named("one_add", "here"))) as (gateway, connection):
        first, second, third = [each.name for each in gateway.tools]
        assert (first, second[:8], third) == ("one_add", "one_add_", "two_add")
        assert [await answer(connection, name) for name in (first, second)] == ["here", "one"]


async def test_a_programs_call_may_have_its_arguments_as_text() -> None:
    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        return f"{arguments['a']}"

    async with between(server_config(made("show", body))) as (gateway, _):
        (show,) = gateway.tools
        request = ToolExecutionRequest("show", '{"a": "text"}')
        assert (await show.executor.execute(request, InvocationContext())).text == "text"


def test_local_tools_are_there_before_it_is_opened() -> None:
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    assert [each.name for each in Gateway(local=ToolBox(add)).tools] == ["add"]


def test_two_servers_with_one_name_are_refused() -> None:
    server = ServerConfig(name="one", transport=HttpTransport("http://127.0.0.1:1/mcp"))
    with pytest.raises(DefinitionError, match="two servers are named 'one'"):
        Gateway([server, server])


# --- servers that are not there -------------------------------------------------------------------------------------


async def test_a_server_that_never_was_there_costs_only_its_own_tools() -> None:
    dead = ServerConfig(name="dead", transport=HttpTransport("http://127.0.0.1:9/mcp"))
    async with between(dead, server_config(named("add", "there"))) as (gateway, connection):
        assert [each.name for each in gateway.tools] == ["upstream_add"]
        assert await answer(connection, "upstream_add") == "there"
        assert {each.name: each.is_listed for each in gateway.status()} == {"dead": False, "upstream": True}


async def test_a_server_that_never_answers_does_not_hold_up_the_others() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        silent = ServerConfig(name="silent", transport=HttpTransport(f"http://127.0.0.1:{port}/mcp"))
        async with between(silent, server_config(named("add", "there")), start_seconds=1) as (gateway, connection):
            assert await answer(connection, "upstream_add") == "there"
            states = {each.name: each.connection.state for each in gateway.status()}
            assert states == {"silent": ConnectionState.CONNECTING, "upstream": ConnectionState.READY}


async def test_without_a_required_server_a_gateway_does_not_open() -> None:
    dead = ServerConfig(name="dead", transport=HttpTransport("http://127.0.0.1:9/mcp"), required=True)
    with pytest.raises(ServerUnavailableError, match="'dead'"):
        async with Gateway([dead, server_config(named("add", "there"))]):
            pytest.fail("it opened")


async def test_a_server_that_is_gone_is_named_in_the_error_of_its_tools_alone(remote: RemoteServer) -> None:
    config = http_config(remote, connect_wait_seconds=0.1)
    async with between(config, server_config(named("here", "still"))) as (_, connection):
        assert await answer(connection, "remote_add", a=1, b=2) == "3"
        remote.kill()
        result = await connection.call_tool("remote_add", {"a": 1, "b": 2})
        assert result["isError"]
        assert text_of(result).startswith("the server 'remote', calling 'add': it is not available: connection refused")
        assert remote.url not in text_of(result)
        assert await answer(connection, "upstream_here") == "still"


@ERAS
async def test_a_server_that_is_started_again_at_its_port_is_found_again(remote: RemoteServer, era: str) -> None:
    pin: Any = era
    async with between(http_config(remote, protocol=pin), era=era) as (_, connection):
        before = await answer(connection, "pid")
        remote.kill()
        await remote.start()
        after = await answer(connection, "pid")
    assert before != after


@ERAS
async def test_a_call_that_was_running_when_its_server_died_is_not_run_again(reports: Reports, era: str) -> None:
    pin: Any = era
    async with between(stdio_config(protocol=pin), era=era) as (_, connection):
        result = await connection.call_tool("end_the_server", {"port": reports.port})
        assert result["isError"]
        assert "the outcome is unknown" in text_of(result)
        assert "served.py" not in text_of(result)
        assert await answer(connection, "run", port=reports.port) == "done"
        await reports.wait_for("ran")
    assert reports.words == ["started", "ran"]


async def test_what_a_child_says_of_its_secrets_does_not_reach_the_caller() -> None:
    code = "import os, sys; print('bad key', os.environ['API_KEY'], file=sys.stderr); sys.exit(3)"
    transport = StdioTransport(sys.executable, args=("-c", code), env={"API_KEY": "hunter2-hunter2"})
    child = ServerConfig(name="child", transport=transport)
    async with between(child, server_config(named("add", "there"))) as (gateway, connection):
        assert await answer(connection, "upstream_add") == "there"
        (problem,) = [each.problem for each in gateway.status() if each.name == "child"]
    assert problem is not None
    assert "bad key ***" in str(problem)
    assert "hunter2" not in str(problem)


# --- a configuration that changes -----------------------------------------------------------------------------------


async def test_only_servers_that_changed_are_started_again() -> None:
    kept, other = stdio_config(name="kept", prefix="kept_"), stdio_config(name="other", prefix="other_")
    async with between(kept, other) as (gateway, connection):
        before = {name: await answer(connection, f"{name}_pid") for name in ("kept", "other")}
        changed = stdio_config(name="other", prefix="other_", timeout_seconds=5)
        await gateway.reconfigure([kept, changed, server_config(named("late", "here"), name="new")])
        after = {name: await answer(connection, f"{name}_pid") for name in ("kept", "other")}
        assert await answer(connection, "new_late") == "here"
        await gateway.reconfigure([kept])
        assert {each.name.partition("_")[0] for each in gateway.tools} == {"kept"}
    assert before["kept"] == after["kept"]
    assert before["other"] != after["other"]


async def test_a_server_that_comes_late_brings_its_tools_with_it(remote: RemoteServer) -> None:
    remote.kill()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Gateway([http_config(remote)], reconnect=ReconnectPolicy(first_delay_seconds=0.01)) as gateway:
            assert len(gateway.tools) == 0
            came = anyio.Event()
            gateway.tools.on_change(came.set)
            await remote.start()
            await came.wait()
            assert "add" in gateway.tools

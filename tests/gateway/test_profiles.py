"""Profiles of a gateway: nothing of the servers of another profile is found, in lists, calls, tasks and texts."""

from __future__ import annotations

import json
import os
from contextlib import asynccontextmanager
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ConfigError, InvocationContext, McpToolProvider, ServerConfig
from bridge.client import HttpTransport
from bridge.client.config.loading import load_config
from bridge.client.transports.stdio import StdioTransport
from bridge.gateway.profiles import profile_named, profiles_of
from bridge.server.profiles import Profile
from bridge.tools.execution import execute_timed
from bridge.tools.tool import ToolExecutionRequest
from tests import forks
from tests.processes import ROOT, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
DATA_KEY, OPS_KEY, ALL_KEY = "data-data-data-data-data", "ops-ops-ops-ops-ops-ops-ops", "all-all-all-all-all-all-all"
DATA = '''
    from bridge import InvocationContext, TaskPolicy, resource, tool

    @tool
    async def query(text: str) -> str:
        """Ask the database."""
        return f"queried {text}"

    @tool(task=TaskPolicy())
    async def job(context: InvocationContext) -> str:
        """Run for long."""
        return "done"

    @resource("db://table/{name}")
    async def table(name: str) -> str:
        """A table."""
        return f"rows of {name}"
'''
OPS = '''
    from bridge import tool

    @tool
    async def restart(name: str) -> str:
        """Restart a service."""
        return f"restarted {name}"
'''


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    for name, text in (("data", DATA), ("ops", OPS)):
        (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    servers = {
        name: forks.entry("-m", "bridge", "serve", str(folder / f"{name}.py"), cwd=str(ROOT))
        for name in ("data", "ops")
    }
    asleep = forks.entry("-c", "import sys; sys.stdin.read()", cwd=str(ROOT))
    profiles = {
        "data-team": {"servers": ["data"], "rename": {"data_query": "ask"}, "instructions": "For data."},
        "ops-team": {"servers": ["ops", "asleep"], "tools": "search"},
        "some": {"include": ["data_query"]},
    }
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers | {"asleep": asleep}, "profiles": profiles}), encoding="utf-8")
    (folder / "keys").write_text(
        f"ada {DATA_KEY} profiles=data-team,some\nbob {OPS_KEY} profiles=ops-*\ncarl {ALL_KEY}\n", encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module")
def origin(config: Path) -> Iterator[str]:
    options = ("--transport", "http", "--port", "0", "--start-wait", "15", "--api-keys", str(config.parent / "keys"))
    with serving("-m", "bridge", "serve", str(config), *options) as gateway:
        yield gateway.origin


@asynccontextmanager
async def connected(origin: str, profile: str, key: str, protocol: Any = "auto") -> AsyncIterator[McpToolProvider]:
    transport = HttpTransport(f"{origin}/mcp/{profile}", headers={"Authorization": f"Bearer {key}"})
    config = ServerConfig(name="gateway", transport=transport, protocol=protocol, required=True)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([config], features=("resources", "prompts")) as provider:
            yield provider


async def text_of(provider: McpToolProvider, name: str, /, **arguments: Any) -> str:
    execution = await execute_timed(provider.tools, ToolExecutionRequest(name, arguments), InvocationContext())
    return execution.result.text


@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_a_profile_has_its_servers_under_its_names(origin: str, protocol: str) -> None:
    async with connected(origin, "data-team", DATA_KEY, protocol) as provider:
        assert [each.name for each in provider.tools] == ["ask", "data_job"]
        assert await text_of(provider, "ask", text="all") == "queried all"
        (connection,) = provider.connections.values()
        assert connection.server_info is not None
        assert connection.server_info.instructions == "For data."
        (template,) = provider.resources.templates
        (file,) = await provider.resources.read(str(template.uri_template).replace("{name}", "users"))
        assert file.content == "rows of users"


@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_another_profile_finds_nothing_of_it(origin: str, protocol: str) -> None:
    async with connected(origin, "ops-team", OPS_KEY, protocol) as provider:
        assert {each.name for each in provider.tools} == {"search_tools", "call_tool"}
        assert await text_of(provider, "search_tools", query="database") == "no tool fits 'database'; use other words"
        for name in ("ask", "data_query", "data_job"):
            assert "queried" not in await text_of(provider, "call_tool", name=name, arguments={"text": "x"})
        call = {"name": "ops_restart", "arguments": {"name": "db"}}
        assert await text_of(provider, "call_tool", **call) == "restarted db"
        (connection,) = provider.connections.values()
        assert connection.server_info is not None
        assert "'asleep'" in str(connection.server_info.instructions)
        assert not [*provider.resources]
        for uri in ("data+db://table/users", "db://table/users"):
            with pytest.raises(Exception, match="table/users"):
                await provider.resources.read(uri)


async def test_a_missing_server_is_named_to_its_own_profile_alone(origin: str) -> None:
    for profile in ("data-team", "some"):
        async with connected(origin, profile, DATA_KEY) as provider:
            (connection,) = provider.connections.values()
            assert connection.server_info is not None
            assert "asleep" not in str(connection.server_info.instructions)


async def test_a_task_is_one_of_the_profiles_with_its_tool(origin: str) -> None:
    async with connected(origin, "data-team", ALL_KEY) as provider:
        task = await provider.start("data_job", {})
        assert (await task.result()).text == "done"
    for profile in ("ops-team", "some"):
        async with connected(origin, profile, ALL_KEY) as provider:
            with pytest.raises(Exception, match="there is no task"):
                await provider.task(str(task)).result()


async def test_one_profile_is_served_over_stdio(config: Path) -> None:
    command, *arguments = forks.command("-m", "bridge", "serve", str(config), "--profile", "some")
    transport = StdioTransport(command, args=tuple(arguments), cwd=str(ROOT))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([ServerConfig(name="one", transport=transport, required=True)]) as provider:
            assert [each.name for each in provider.tools] == ["data_query"]
            assert await text_of(provider, "data_query", text="x") == "queried x"


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([], "'profiles': must be an object of profiles by name, not a list"),
        ({"a b": {}}, "the name of a profile has"),
        ({"a": {"inlude": ["x"]}}, "'profiles.a.inlude': is not a known key"),
        ({"a": {"include": "x"}}, "'profiles.a.include': must be a list"),
        ({"a": {"scopes": ["a b"]}}, "a scope is visible ASCII"),
    ],
)
def test_a_profile_that_is_wrong_is_named_with_its_key(tmp_path: Path, profiles: Any, message: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, "profiles": profiles}), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        profiles_of([load_config(path)])
    assert message in str(caught.value)


def test_profiles_of_two_configurations_need_different_names(config: Path) -> None:
    found = load_config(config)
    assert profile_named("some", found) == Profile(name="some", include=("data_query",))
    with pytest.raises(ConfigError, match="another configuration has a profile of this name"):
        profiles_of([found, found])
    with pytest.raises(ConfigError, match="'none' is not one of its profiles"):
        profile_named("none", found)


def test_names_of_a_profile_are_those_of_the_gateway_in_every_command(config: Path) -> None:
    with forks.popen(
        ("-m", "bridge", "list", str(config), "--profile", "data-team", "--json"), cwd=ROOT, env=os.environ
    ) as process:
        assert process.stdout is not None
        listed = json.loads(process.stdout.read())
    assert [each["name"] for each in listed["tools"]] == ["ask", "data_job"]

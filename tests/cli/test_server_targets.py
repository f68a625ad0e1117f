"""Files with a server of this package, or of the SDK, as targets."""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

BRIDGE = (sys.executable, "-m", "bridge")
APP = '''
    """An application."""
    from bridge import InvocationContext, Server, prompt, resource, tool


    async def pool():
        print("open")
        yield "pool"
        print("closed")


    @tool(tags={"public"})
    def shown(context: InvocationContext) -> str:
        """Show the pool."""
        return str(context.lifespan)


    @tool(name="greet", version="1", tags={"public"})
    def greet_1() -> str:
        return "Hello!"


    @tool(name="greet", version="2")
    def greet_2() -> str:
        return "Hi!"


    @resource("notes://today", tags={"public"})
    def today() -> str:
        return "Today"


    part = Server([greet_1, greet_2, today], name="part")
    server = Server(shown, name="mine", version="7", instructions="Be nice.", lifespan=pool)
    server.mount(part, prefix="x")
'''
LEGACY = '''
    """Servers of the SDK."""
    from mcp.server.mcpserver import MCPServer

    mcp = MCPServer("legacy")


    @mcp.tool()
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()


    @mcp.resource("notes://today")
    def today() -> str:
        return "Today"
'''
MOUNTED = """
    from bridge import Server
    from bridge.gateway import from_mcp
    from legacy import mcp

    server = Server(name="new")
    server.mount(from_mcp(mcp), prefix="old")
"""


@pytest.fixture(autouse=True)
def _files(directory: Path) -> None:
    for name, text in (("app", APP), ("legacy", LEGACY), ("mounted", MOUNTED)):
        (directory / f"{name}.py").write_text(dedent(text))


@pytest.mark.parametrize("target", ["app.py", "app.py:server", "app"])
def test_a_server_is_a_target_with_its_lifespan(run: Run, target: str) -> None:
    done = run("call", target, "shown")
    assert (done.returncode, done.stdout.splitlines()[-1:], done.stderr) == (0, ["pool"], "open\nclosed\n")
    assert run("call", target, "x_greet").stdout.splitlines()[-1:] == ["Hi!"]
    assert run("read", target, "x+notes://today").stdout.splitlines()[-1:] == ["Today"]


def test_one_of_several_servers_can_be_named(run: Run) -> None:
    assert run("call", "app.py:part", "greet").stdout == "Hi!\n"


def test_it_is_served_with_its_own_name_version_and_instructions(run: Run) -> None:
    request = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'  # fmt: skip  # noqa: E501
    done = run("serve", "app.py", stdin=request)
    assert '"serverInfo":{"name":"mine","version":"7"}' in done.stdout
    assert '"instructions":"Be nice."' in done.stdout
    assert "serving mine over stdio" in done.stderr
    named = run("serve", "app.py", "--name", "other", "--instructions", "Hurry.", stdin=request)
    assert '"serverInfo":{"name":"other","version":"7"}' in named.stdout
    assert '"instructions":"Hurry."' in named.stdout


@pytest.mark.parametrize("env", [None, {"BRIDGE_TAGS": "public,unused"}])
def test_tags_select_what_is_served(run: Run, env: dict[str, str] | None) -> None:
    options = [] if env else ["--tags", "public"]
    listed = run("list", "--json", "--", *BRIDGE, "serve", "app.py", *options, env=env)
    assert '"shown"' in listed.stdout
    assert '"x+notes://today"' in listed.stdout
    called = run("call", "x_greet", "--", *BRIDGE, "serve", "app.py", *options, env=env)
    assert called.stdout == "Hello!\n", "the newer version has no tag"


@pytest.mark.parametrize(("target", "prefix"), [("legacy.py:mcp", ""), ("legacy.py", ""), ("mounted.py", "old_")])
def test_a_server_of_the_sdk_is_a_target_and_may_be_mounted(run: Run, target: str, prefix: str) -> None:
    assert run("call", target, f"{prefix}shout", "text=hey").stdout == "HEY\n"
    uri = "old+notes://today" if prefix else "notes://today"
    assert run("read", target, uri).stdout.strip() == "Today"
    served = run("call", f"{prefix}shout", "text=hey", "--", *BRIDGE, "serve", target)
    assert (served.returncode, served.stdout) == (0, "HEY\n")

"""Servers of the SDK in this process, and servers beside those of a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from bridge import ClientHandlers, DefinitionError, InvocationContext, Server, ServerConfig, resource, tool
from bridge.client import MemoryTransport
from bridge.gateway import Gateway, from_mcp
from bridge.testing import connected
from bridge.tools import Elicitation, ElicitationAnswer, UrlElicitation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


class Name(BaseModel):
    name: str


def legacy() -> MCPServer[Any]:
    mcp: MCPServer[Any] = MCPServer("legacy")

    @mcp.tool()
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    @mcp.tool()
    async def ask(ctx: Context[Any, Any]) -> str:
        """Ask the person."""
        answer = await ctx.elicit("Your name?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else answer.action

    @mcp.resource("notes://today")
    def today() -> str:
        return "Today"

    @mcp.resource("notes://{name}/page")
    def page(name: str) -> str:
        return f"page of {name}"

    @mcp.prompt()
    def hi(name: str) -> str:
        return f"Hi {name}!"

    return mcp


@tool
async def add(a: int, b: int) -> int:
    return a + b


@resource("own://a")
async def own() -> str:
    return "own"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_server_of_the_sdk_is_mounted(protocol: Any) -> None:
    server = Server(add, name="outer")
    server.mount(from_mcp(legacy()), prefix="x")
    for _ in range(2):  # it is opened anew
        async with connected(server, protocol=protocol) as provider:
            assert [each.name for each in provider.tools] == ["add", "x_shout", "x_ask"]
            assert (await provider.call("x_shout", {"text": "hey"})).text == "HEY"
            assert [provider.resources.key_of(each) for each in await provider.resources.list()] == [
                "x+notes://today",
                "x+notes://{name}/page",
            ]
            (note,) = await provider.resources.read("x+notes://today")
            assert (note.uri, note.content) == ("x+notes://today", "Today")
            (page,) = await provider.resources.read("x+notes://a/page")
            assert (page.uri, page.content) == ("x+notes://a/page", "page of a")
            (message,) = await provider.prompts.render("x_hi", {"name": "Ada"})
            assert getattr(message.content, "text", "") == "Hi Ada!"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_its_questions_reach_the_client(protocol: Any) -> None:
    async def answer(question: Elicitation | UrlElicitation, _: InvocationContext) -> ElicitationAnswer:
        assert question.message == "Your name?"
        return ElicitationAnswer("accept", {"name": "Ada"})

    server = Server(add, name="outer")
    server.mount(from_mcp(legacy()), prefix="x")
    async with connected(server, protocol=protocol, handlers=ClientHandlers(elicitation=answer)) as provider:
        assert (await provider.call("x_ask")).text == "Hello Ada"


async def test_several_servers_of_the_sdk_are_mounted() -> None:
    server = Server(name="outer")
    server.mount(from_mcp(legacy()), prefix="x")
    server.mount(from_mcp(legacy(), name="other"), prefix="y")
    async with connected(server) as provider:
        assert (await provider.call("x_shout", {"text": "a"})).text == "A"
        assert (await provider.call("y_shout", {"text": "b"})).text == "B"
        assert (await provider.resources.read("y+notes://today"))[0].content == "Today"
    with pytest.raises(DefinitionError, match="two sources have tasks of other servers"):
        server.mount([from_mcp(legacy(), protocol="auto"), from_mcp(legacy(), protocol="auto")], prefix="z")


async def test_a_server_is_the_local_part_of_a_gateway_with_its_lifespan() -> None:
    log: list[str] = []

    async def pool() -> AsyncIterator[str]:
        log.append("open")
        yield "pool"
        log.append("closed")

    local = Server([add, own], name="local", lifespan=pool)
    remote = Server(tool(name="remote")(lambda: "there"), name="remote")
    config = ServerConfig(name="far", transport=MemoryTransport(remote), required=True)
    async with Gateway([config], local=local) as gateway, connected(gateway.features) as provider:
        assert log == ["open"]
        assert [each.name for each in provider.tools] == ["add", "remote"]
        assert (await provider.resources.read("own://a"))[0].content == "own"
        local.mount(Server(add, name="late"), prefix="late")
        assert "late_add" in gateway.tools
    assert log == ["open", "closed"]


async def test_what_is_no_server_is_refused() -> None:
    for given in (add, Server(add, name="own"), object()):
        with pytest.raises(DefinitionError, match="is not a server of the SDK or of FastMCP"):
            from_mcp(given)
    with pytest.raises(DefinitionError, match=r"is a server of another package; give from_mcp\(…\) of bridge.gateway"):
        Server(legacy(), name="outer")

"""Servers of servers: under other names and URIs, with their lifespans, over HTTP in both eras, and live."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import pytest

from bridge import (
    DefinitionError,
    Depends,
    File,
    HttpTransport,
    InvocationContext,
    McpToolProvider,
    NameClashError,
    PromptMessage,
    ResourceBox,
    ResourceLink,
    Server,
    ServerConfig,
    ToolBox,
    filtered,
    prompt,
    resource,
    tool,
)
from bridge.prompts import PromptBox
from bridge.server import Features, http_app, namespaced
from bridge.testing import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

DEADLINE_SECONDS = 30
pytestmark = pytest.mark.anyio


@tool
async def link() -> ResourceLink:
    """Link to a note."""
    return ResourceLink("notes://today", "today")


@tool
def outside() -> ResourceLink:
    """Link to a page that this server does not read."""
    return ResourceLink("https://example.org/", "page")


@tool
async def size(text: str) -> int:
    """Count."""
    return len(text)


@resource("notes://today", mime_type="text/markdown")
async def today() -> str:
    return "# Today"


@resource("notes://{name}/parts")
def parts(name: str) -> list[File]:
    return [File(f"notes://{name}/parts", "one", "text/plain"), File("other://x", "two", "text/plain")]


@resource("ui://notes/page")
def page() -> str:
    return "<p>"


@prompt
def review(topic: str) -> list[str | PromptMessage]:
    return [f"Review {topic}", PromptMessage(ResourceLink("notes://today", "today"))]


NOTES = (link, outside, size, today, parts, page, review)


@asynccontextmanager
async def over_http(serving: Callable[..., str], server: Server, protocol: Any) -> AsyncIterator[McpToolProvider]:
    url = serving(http_app(server)) + "/mcp"
    config = ServerConfig(name="http", transport=HttpTransport(url), protocol=protocol, required=True)
    async with McpToolProvider(config) as provider:
        yield provider


async def eventually(holds: Callable[[], bool], provider: McpToolProvider) -> None:
    """Wait until a change has arrived."""
    changed = anyio.Event()
    provider.tools.on_change(changed.set)
    provider.resources.on_change(changed.set)
    with anyio.fail_after(DEADLINE_SECONDS):
        while not holds():
            await changed.wait()
            changed = anyio.Event()
            provider.tools.on_change(changed.set)
            provider.resources.on_change(changed.set)


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_mounted_server_has_tools_resources_and_prompts_under_its_prefix(
    serving: Callable[..., str], protocol: Any
) -> None:
    server = Server(size, name="outer")
    server.mount(Server(NOTES, name="notes"), prefix="my_notes")
    async with over_http(serving, server, protocol) as provider:
        names = [each.name for each in provider.tools]
        assert names == ["size", "my_notes_link", "my_notes_outside", "my_notes_size"]
        assert (await provider.call("my_notes_size", {"text": "four"})).text == "4"
        (linked,) = (await provider.call("my_notes_link")).content
        assert getattr(linked, "uri", "") == "my-notes+notes://today"
        (left,) = (await provider.call("my_notes_outside")).content
        assert getattr(left, "uri", "") == "https://example.org/"

        listed = {each.name: provider.resources.key_of(each) for each in await provider.resources.list()}
        assert listed == {
            "my_notes_today": "my-notes+notes://today",
            "my_notes_page": "ui://my-notes/notes/page",
            "my_notes_parts": "my-notes+notes://{name}/parts",
        }
        (note,) = await provider.resources.read("my-notes+notes://today")
        assert (note.uri, note.content, note.mime_type) == ("my-notes+notes://today", "# Today", "text/markdown")
        several = await provider.resources.read("my-notes+notes://x/parts")
        assert [each.uri for each in several] == ["my-notes+notes://x/parts", "other://x"]
        (html,) = await provider.resources.read("ui://my-notes/notes/page")
        assert html.content == "<p>"

        first, second = await provider.prompts.render("my_notes_review", {"topic": "it"})
        assert getattr(first.content, "text", "") == "Review it"
        assert getattr(second.content, "uri", "") == "my-notes+notes://today"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_changes_of_a_mounted_server_reach_the_clients(serving: Callable[..., str], protocol: Any) -> None:
    tools, resources = ToolBox(size), ResourceBox(today)
    inner, server = Server([tools, resources], name="inner"), Server(link, name="outer")
    server.mount(inner, prefix="x")
    async with over_http(serving, server, protocol) as provider:
        await provider.resources.list()
        tools.add(outside)
        await eventually(lambda: "x_outside" in provider.tools, provider)
        resources.add(page)
        await eventually(lambda: "ui://x/notes/page" in provider.resources, provider)
        inner.mount(Server(prompt(lambda: "deep", name="deep"), name="third"), prefix="y")  # type: ignore[call-overload]
        assert "x_y_deep" in (server.features.prompts or ())


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_mounting_on_a_running_server_is_announced(serving: Callable[..., str], protocol: Any) -> None:
    server = Server(size, name="outer")
    server.mount(link)  # from now on it has all kinds
    async with over_http(serving, server, protocol) as provider:
        assert await provider.resources.list() == ()
        server.mount(NOTES, prefix="x")
        await eventually(lambda: "x_size" in provider.tools, provider)
        await eventually(lambda: "x+notes://today" in provider.resources, provider)
        assert (await provider.resources.read("x+notes://today"))[0].content == "# Today"


async def test_a_running_server_that_had_tools_alone_gets_resources() -> None:
    server = Server(size, name="outer")
    async with connected(server):
        server.mount(NOTES, prefix="x")
        async with connected(server) as provider:  # a client that has not been told otherwise
            assert "x+notes://today" in [getattr(each, "uri", "") for each in await provider.resources.list()]
            assert (await provider.resources.read("x+notes://today"))[0].content == "# Today"


async def test_updates_of_mounted_resources_are_announced() -> None:
    resources = ResourceBox(today)
    server = Server(size, name="outer")
    server.mount([resources], prefix="x")
    async with connected(server) as provider:
        updated = anyio.Event()
        end = await provider.resources.watch("x+notes://today", lambda _: updated.set())
        resources.updated("notes://today")
        with anyio.fail_after(DEADLINE_SECONDS):
            await updated.wait()
        end()


async def own(context: InvocationContext) -> str:
    return str(context.lifespan)


def own_in_thread(context: InvocationContext) -> str:
    return str(context.lifespan)


def of_dependency(context: InvocationContext) -> str:
    return str(context.lifespan)


async def depending(value: Annotated[str, Depends(of_dependency)]) -> str:
    return value


def complete_own(_text: str, _values: Mapping[str, str], context: InvocationContext) -> list[str]:
    return [str(context.lifespan)]


@resource("own://{name}", completions={"name": complete_own})
async def own_resource(name: str, context: InvocationContext) -> str:
    return f"{name} {context.lifespan}"


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_each_server_has_its_own_lifespan_which_the_outer_one_opens() -> None:
    log: list[str] = []

    def lifespan(name: str) -> Callable[[], AsyncIterator[str]]:
        async def opened() -> AsyncIterator[str]:
            log.append(f"open {name}")
            yield name
            log.append(f"close {name}")

        return opened

    functions = (own, own_in_thread, depending, own_resource)
    outer = Server(own, name="outer", lifespan=lifespan("outer"))
    outer.mount(Server(functions, name="inner", lifespan=lifespan("inner")), prefix="in")
    outer.mount(Server(own, name="without"), prefix="without")
    async with connected(outer) as provider:
        assert log == ["open outer", "open inner"]
        for name in ("in_own", "in_own_in_thread", "in_depending"):
            assert (await provider.call(name)).text == "inner"
        assert (await provider.call("own")).text == (await provider.call("without_own")).text == "outer"
        assert (await provider.resources.read("in+own://a"))[0].content == "a inner"
        completion = await provider.resources.complete("in+own://{name}", "name", "")
        assert list(completion.values) == ["inner"]
    assert log == ["open outer", "open inner", "close inner", "close outer"]


async def test_without_a_prefix_names_stay_and_must_be_free() -> None:
    server = Server(size, name="outer")
    server.mount(Server([link, today], name="a"))
    assert [each.name for each in server.tools] == ["size", "link"]
    with pytest.raises(NameClashError, match="two resources have the URI 'notes://today'"):
        server.mount([outside, today])
    assert [each.name for each in server.tools] == ["size", "link"], "nothing of it is mounted"
    with pytest.raises(DefinitionError, match="cannot be mounted on itself"):
        server.mount(server)
    for prefix in ("", "a b", "ä"):
        with pytest.raises(DefinitionError, match="a prefix has 1 to 64"):
            namespaced(size, prefix)


async def test_a_server_is_a_source_wherever_sources_are_taken() -> None:
    server = Server([size, today, review], name="notes")
    assert list(ToolBox(server)) == list(server.tools)
    assert [each.uri for each in ResourceBox(server).resources] == ["notes://today"]
    assert [each.name for each in PromptBox(server)] == ["review"]
    together = Features.of(server, link)
    assert [each.name for each in together.tools] == ["size", "link"]
    server.tools.add(outside)
    assert "outside" in together.tools
    selected = filtered(server, include={"size", "review"})
    assert [item.name for item in selected.published()] == ["size", "review"]
    async with connected(namespaced(selected, "x")) as provider:
        assert [each.name for each in provider.tools] == ["x_size"]


async def test_options_of_a_given_server_are_its_own() -> None:
    server = Server(size, name="mine", instructions="Count with it.")
    async with connected(server) as provider:
        info = provider.connections["memory"].server_info
        assert info is not None
        assert (info.name, info.instructions) == ("mine", "Count with it.")
    with pytest.raises(DefinitionError, match="give the lifespan and middleware to the Server"):
        async with connected(server, lifespan=lambda: None):
            pass

"""Resources and prompts of a real server, over each transport and in both eras."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    DefinitionError,
    File,
    HttpTransport,
    PromptMessage,
    ResourceBox,
    ResourceLink,
    ServerConfig,
    resource,
)
from bridge.client import ClientHandlers, Connection, McpToolProvider
from bridge.errors import ResourceNotFoundError, ServerRefusedError
from bridge.prompts import PromptArgument
from bridge.testing import connected
from bridge.tools import ElicitationAnswer
from tests.client.conftest import RemoteServer, forked
from tests.processes import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge.client.config.servers import ProtocolPin

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

SERVED = "tests/client/served_features.py:FEATURES"


async def answer(_question: object, _context: object) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"dish": "soup"})


HANDLERS = ClientHandlers(elicitation=answer)


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """The URL of the server over HTTP."""
    with serving("-m", "bridge", "serve", SERVED, "--transport", "http", "--port", "0") as server:
        yield f"{server.origin}/mcp"


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest, http: str) -> Any:
    """The route to the server."""
    if request.param == "stdio":
        return forked("-m", "bridge", "serve", SERVED)
    return HttpTransport(http)


@pytest.fixture(params=["2026-07-28", "legacy"])
def config(request: pytest.FixtureRequest, transport: Any) -> ServerConfig:
    """The server, in one era."""
    return ServerConfig(name="Big Notes", transport=transport, protocol=request.param)


@pytest.fixture
async def provider(config: ServerConfig) -> AsyncIterator[McpToolProvider]:
    """One server, whose URIs are unchanged."""
    async with McpToolProvider(config, handlers=HANDLERS) as provider:
        yield provider


async def test_what_is_listed_is_read_rendered_and_completed(provider: McpToolProvider) -> None:
    listed = await provider.resources.list()
    assert {each.server for each in listed} == {"Big Notes"}
    one = next(each for each in provider.resources.resources if each.uri == "notes://all")
    assert (one.name, one.title, one.annotations) == ("titles", "All notes", {"priority": 0.5})
    (template,) = provider.resources.templates
    assert (str(template.uri_template), template.mime_type) == ("notes://{title}{?style}", "text/markdown")
    assert await provider.resources.read("notes://milk?style=loud") == (
        File("notes://milk?style=loud", "2 LITRES", "text/markdown"),
    )
    assert (await provider.resources.complete("notes://{title}{?style}", "title", "m")).values == ("milk", "money")
    assert (await provider.resources.complete("notes://{title}{?style}", "style", "l")).values == ("loud",)
    review = next(each for each in await provider.prompts.list() if each.name == "review")
    assert (review.title, review.arguments) == (
        "Review",
        (PromptArgument(name="code", required=True), PromptArgument(name="language")),
    )
    assert await provider.prompts.render("review", {"code": "pass"}) == (
        PromptMessage("Review this python: pass"),
        PromptMessage(File("notes://all", "milk", "text/plain"), "assistant"),
    )
    assert (await provider.prompts.complete("review", "language", "p")).values == ("python", "perl")


async def test_what_does_not_exist_is_named(provider: McpToolProvider) -> None:
    with pytest.raises(ResourceNotFoundError, match="there is no resource 'notes://nothing'"):
        await provider.resources.read("notes://nothing")
    with pytest.raises(DefinitionError, match="there is no prompt 'revue'; did you mean 'review'"):
        await provider.prompts.render("revue")
    with pytest.raises(ServerRefusedError, match="code"):
        await provider.prompts.render("review")
    with pytest.raises(DefinitionError, match="there is no resource template 'notes://x'"):
        await provider.resources.complete("notes://x", "title", "")


async def test_questions_asked_while_reading_are_answered_by_the_handlers(provider: McpToolProvider) -> None:
    assert await provider.resources.read("question://dish") == (File("question://dish", "soup", "text/plain"),)


async def test_those_who_watch_a_resource_are_notified_until_they_end_it(provider: McpToolProvider) -> None:
    changes, receive = anyio.create_memory_object_stream[str](10)
    stop = await provider.resources.watch("notes://milk", lambda uri: changes.send_nowait(f"one {uri}"))
    end = await provider.resources.watch("notes://milk", lambda uri: changes.send_nowait(f"two {uri}"))
    await provider.call("change", title="milk", text="2 litres")
    assert [await receive.receive(), await receive.receive()] == ["one notes://milk", "two notes://milk"]
    stop()
    stop()
    await provider.call("change", title="milk", text="2 litres")
    assert await receive.receive() == "two notes://milk"
    end()
    changes.close()
    receive.close()


async def test_watchers_are_notified_of_their_resource_and_its_parts_though_one_fails(
    provider: McpToolProvider,
) -> None:
    def fail(uri: str) -> None:
        raise RuntimeError(uri)

    seen: list[str] = []
    await provider.resources.watch("notes://milk", fail)
    stop = await provider.resources.watch("notes://milk", seen.append)
    await provider.resources.watch("notes://milk", seen.append)
    stop()
    stop()
    of_milk = ["notes://milk", "notes://milk/fat", "notes://milk?style=loud", "notes://milk#fat"]
    for uri in (*of_milk, "notes://milkshake", "notes://mil", "notes://"):
        provider.resources.notify("Big Notes", uri)
    assert seen == of_milk


async def test_those_who_watch_a_folder_are_notified_of_its_files() -> None:
    @resource("file:///{+path}")
    def file(path: str) -> str:
        return path

    seen: list[str] = []
    async with connected(ResourceBox(file)) as provider:
        await provider.resources.watch("file:///logs/", seen.append)
        for uri in ("file:///logs/", "file:///logs/today", "file:///logs", "file:///logs-of-old"):
            provider.resources.notify("memory", uri)
    assert seen == ["file:///logs/", "file:///logs/today"]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_a_watched_resource_is_watched_again_when_its_server_is_replaced(
    http: str, protocol: ProtocolPin, is_open: bool
) -> None:
    config = ServerConfig(name="notes", transport=HttpTransport(http), protocol=protocol)
    changes, receive = anyio.create_memory_object_stream[str](10)
    changed = Connection(replace(config, timeout_seconds=20))
    async with AsyncExitStack() as stack:
        if is_open:
            await stack.enter_async_context(changed)
        provider = await stack.enter_async_context(McpToolProvider(config))
        stop = await provider.resources.watch("notes://milk", changes.send_nowait)
        ended = await provider.resources.watch("notes://all", changes.send_nowait)
        ended()
        await provider.reconfigure(changed)
        assert await receive.receive() == "notes://milk", "it may have changed meanwhile"
        assert receive.statistics().current_buffer_used == 0
        await provider.call("change", title="milk", text="2 litres")
        assert await receive.receive() == "notes://milk"
        stop()
        await provider.remove(config.name)
        await provider.add(config)
        await provider.resources.watch("notes://all", print)
        assert receive.statistics().current_buffer_used == 0, "nobody watches it"
    changes.close()
    receive.close()


async def test_a_resource_that_cannot_be_watched_is_refused(provider: McpToolProvider) -> None:
    with pytest.raises(ServerRefusedError, match="watching 'other://x'"):
        await provider.resources.watch("other://x", print)


async def test_lists_follow_the_changes_of_the_server(provider: McpToolProvider) -> None:
    await provider.resources.list()
    await provider.prompts.list()
    for is_there in ("bytes://all" not in provider.resources, "bytes://all" in provider.resources):
        resources, prompts = anyio.Event(), anyio.Event()
        ends = (provider.resources.on_change(resources.set), provider.prompts.on_change(prompts.set))
        await provider.call("extend")
        await resources.wait()
        await prompts.wait()
        for end in ends:
            end()
        assert ("bytes://all" in provider.resources, "menu" in provider.prompts) == (is_there, is_there)
        if is_there:
            (content,) = await provider.resources.read("bytes://all")
            assert content.content == bytes(range(256))
            assert await provider.prompts.render("menu") == (PromptMessage("Cook soup"),)


async def test_several_servers_resources_and_prompts_stay_apart(config: ServerConfig) -> None:
    servers = [replace(config, name=name) for name in ("one", "Two_2")]
    async with McpToolProvider(servers) as provider:
        one = "one+notes://all", "one+question://dish", "one+notes://{title}{?style}"
        two = tuple(uri.replace("one+", "two-2+") for uri in one)
        listed = {provider.resources.key_of(each) for each in await provider.resources.list()}
        assert listed >= {*one, *two}
        assert {"one_review", "Two_2_review"} <= {each.name for each in await provider.prompts.list()}
        assert await provider.resources.read("two-2+notes://milk") == (
            File("two-2+notes://milk", "2 litres", "text/markdown"),
        )
        messages = await provider.prompts.render("one_review", {"code": "pass"})
        assert messages[1].content == File("one+notes://all", "milk", "text/plain")
        (link,) = (await provider.call("Two_2_linked")).content
        assert link == ResourceLink("two-2+notes://milk", "milk")
        assert (await provider.resources.complete(one[2], "title", "mi")).values == ("milk",)
        changes, receive = anyio.create_memory_object_stream[str](10)
        await provider.resources.watch("one+notes://milk", changes.send_nowait)
        await provider.call("one_change", title="milk", text="2 litres")
        assert await receive.receive() == "one+notes://milk"
        changes.close()
        receive.close()


async def test_what_templates_of_two_servers_match_goes_to_neither_silently(http: str) -> None:
    servers = [ServerConfig(name=name, transport=HttpTransport(http)) for name in ("one", "two")]
    async with McpToolProvider(servers, prefix="on_collision") as provider:
        with pytest.raises(ResourceNotFoundError, match="there is no resource 'notes://milk'"):
            await provider.resources.read("notes://milk")
        (file,) = await provider.resources.read("two+notes://milk")
        assert file.uri == "two+notes://milk"
    async with McpToolProvider(servers, prefix="never", features=["resources"]) as provider:
        assert not provider.resources.templates
        reason = (
            "the beginning of the resource template 'notes://{title}{?style}' is another server's too, and prefix is"
        )
        assert all(any(each.startswith(reason) for each in status.skipped) for status in provider.status())


@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
async def test_a_watched_resource_is_watched_again_after_a_reconnection(protocol: ProtocolPin) -> None:
    server = RemoteServer(SERVED)
    await server.start()
    config = ServerConfig(name="notes", transport=HttpTransport(server.url), protocol=protocol, connect_wait_seconds=30)
    async with McpToolProvider(config) as provider:
        await provider.resources.list()
        changes, receive = anyio.create_memory_object_stream[str](100)
        await provider.resources.watch("notes://milk", changes.send_nowait)
        server.kill()
        await server.start()
        assert (await provider.call("change", title="milk", text="1 litre")).text == "changed"
        assert await receive.receive() == "notes://milk", "it may have changed meanwhile"
        await provider.resources.watch("notes://all", print)  # waits until all are watched
        while receive.statistics().current_buffer_used:
            receive.receive_nowait()
        await provider.call("change", title="milk", text="2 litres")
        assert await receive.receive() == "notes://milk"
        changes.close()
        receive.close()
    server.kill()

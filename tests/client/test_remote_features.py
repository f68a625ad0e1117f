"""Resources and prompts of a real server, over each transport and in both eras."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    DefinitionError,
    ElicitationAnswer,
    File,
    HttpTransport,
    PromptArgument,
    PromptMessage,
    ResourceLink,
    ResourceNotFoundError,
    ServerConfig,
    StdioTransport,
)
from bridge.client import ClientHandlers, McpToolProvider
from bridge.errors import ServerRefusedError
from tests.client.conftest import RemoteServer
from tests.processes import ROOT, serving

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
    """How the server is reached."""
    if request.param == "stdio":
        return StdioTransport(sys.executable, args=("-m", "bridge", "serve", SERVED), cwd=str(ROOT))
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

"""The reference servers from npm, through a provider: over every transport that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    ClientHandlers,
    File,
    HttpTransport,
    Image,
    InvocationContext,
    McpToolProvider,
    ResourceLink,
    ServerConfig,
    StdioTransport,
    Text,
)
from bridge.tools import Elicitation, ElicitationAnswer, Root, Sampling, SamplingAnswer, UrlElicitation
from bridge.tools.channel import Channel
from tests.interop.packages import npm_server, running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


async def fill_in(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
    assert isinstance(question, Elicitation)
    assert question.schema["required"] == ["name"]
    return ElicitationAnswer("accept", {"name": "Ada", "integer": 7})


async def complete(question: Sampling, context: InvocationContext) -> SamplingAnswer:
    return SamplingAnswer((Text("an answer"),), model="deep")


async def folders(context: InvocationContext) -> list[Root]:
    return [Root("file:///home/ada", "home")]


HANDLERS = ClientHandlers(elicitation=fill_in, sampling=complete, roots=folders)


@pytest.fixture(scope="module", params=["stdio", "http", "sse", "guessed sse"])
async def everything(request: pytest.FixtureRequest) -> AsyncIterator[McpToolProvider]:
    """``server-everything`` over one of its transports."""
    node, script = npm_server("everything")
    kind: Any = request.param
    if kind == "stdio":
        transport: Any = StdioTransport(node, args=(script, "stdio"))
        async with provided(transport) as provider:
            yield provider
        return
    port = free_port()
    mode, path = ("streamableHttp", "mcp") if kind == "http" else ("sse", "sse")
    with running(node, script, mode, says=f"port {port}", PORT=str(port)):
        url = f"http://127.0.0.1:{port}/{path}"
        async with provided(HttpTransport(url, kind=None if kind == "guessed sse" else kind)) as provider:
            yield provider


def provided(transport: StdioTransport | HttpTransport) -> McpToolProvider:
    config = ServerConfig(name="other", transport=transport, required=True)
    return McpToolProvider(config, handlers=HANDLERS, resources=True)


async def text_of(provider: McpToolProvider, name: str, **arguments: Any) -> str:
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await provider.call(name, arguments)
    assert not result.is_error, result.text
    return result.text


async def test_tools_are_listed_and_called(everything: McpToolProvider) -> None:
    assert await text_of(everything, "echo", message="grüß") == "Echo: grüß"
    assert await text_of(everything, "get-sum", a=1, b=2) == "The sum of 1 and 2 is 3."
    specification = everything.tools.get("echo").specification
    assert specification.parameters["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert specification.annotations is not None
    assert specification.annotations.idempotent is True


async def test_arguments_are_judged_by_the_server(everything: McpToolProvider) -> None:
    result = await everything.call("get-sum", {"a": "x"})
    assert result.is_error
    assert "Invalid arguments" in result.text


async def test_every_kind_of_content_arrives(everything: McpToolProvider) -> None:
    picture = await everything.call("get-tiny-image")
    assert [type(block) for block in picture.content] == [Text, Image, Text]
    image = picture.content[1]
    assert isinstance(image, Image)
    assert image.data.startswith(b"\x89PNG")
    links = await everything.call("get-resource-links", {"count": 2})
    assert [type(block) for block in links.content] == [Text, ResourceLink, ResourceLink]
    embedded = await everything.call("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
    assert File in [type(block) for block in embedded.content]
    weather = await everything.call("get-structured-content", {"location": "Chicago"})
    assert weather.structured_content.keys() == {"temperature", "conditions", "humidity"}


async def test_its_questions_reach_the_handlers(everything: McpToolProvider) -> None:
    assert "an answer" in await text_of(everything, "trigger-sampling-request", prompt="?")
    assert '"name": "Ada"' in await text_of(everything, "trigger-elicitation-request")
    assert "file:///home/ada" in await text_of(everything, "get-roots-list")


async def test_its_progress_reaches_the_context(everything: McpToolProvider) -> None:
    heard: list[tuple[float, float | None]] = []

    class Hearing(Channel):
        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, total))

    with anyio.fail_after(DEADLINE_SECONDS):
        context = InvocationContext(channel=Hearing())
        await everything.call("trigger-long-running-operation", {"duration": 0.2, "steps": 4}, context=context)
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_its_resources_are_listed_and_read(everything: McpToolProvider) -> None:
    await everything.resources.list()
    assert everything.resources.templates
    document = next(each for each in everything.resources.resources if each.uri.endswith("architecture.md"))
    (file,) = await everything.resources.read(document.uri)
    assert isinstance(file.content, str)
    assert file.content.startswith("# ")


async def test_files_are_written_and_read_through_the_filesystem_server(tmp_path: Path) -> None:
    node, script = npm_server("filesystem")
    async with provided(StdioTransport(node, args=(script, str(tmp_path)))) as files:
        await text_of(files, "write_file", path=str(tmp_path / "a.txt"), content="inside")
        assert (tmp_path / "a.txt").read_text() == "inside"
        read = await files.call("read_text_file", {"path": str(tmp_path / "a.txt")})
        assert (read.text, read.structured_content) == ("inside", {"content": "inside"})
        outside = await files.call("read_text_file", {"path": "/etc/hostname"})
        assert outside.is_error
        assert "Access denied" in outside.text


async def test_what_is_told_to_the_memory_server_is_found_again(tmp_path: Path) -> None:
    node, script = npm_server("memory")
    transport = StdioTransport(node, args=(script,), env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    ada = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    async with provided(transport) as memory:
        await text_of(memory, "create_entities", entities=[ada])
    async with provided(transport) as memory:
        found = await memory.call("search_nodes", {"query": "programs"})
    assert found.structured_content == {"entities": [ada], "relations": []}

from __future__ import annotations

import json

import pytest

from bridge import Audio, DefinitionError, File, Image, InvocationContext, ServerConfig, Text
from bridge.client import McpToolProvider, RemoteResource, resources
from bridge.errors import ServerRefusedError, WireError
from tests.client.foreign import ForeignServer
from tests.client.test_provider import NOWHERE, add, memory_config, names

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

A = RemoteResource(
    server="foreign", uri="file:///a.txt", name="a", description="A file.", mime_type="text/plain", size_bytes=2
)
B = RemoteResource(server="foreign", uri="pic:///b", name="b")


async def test_a_program_lists_all_pages_and_reads_each_kind() -> None:
    async with McpToolProvider([ForeignServer().config(), memory_config("one", add)]) as provider:
        assert await provider.resources.list("foreign") == (A, B)
        assert await provider.resources.list("one") == ()
        read = [await provider.resources.read("foreign", uri) for uri in (A.uri, B.uri, "snd:///c", "bin:///d")]
    assert read == [
        (Text("inside"),),
        (Image(b"\x00\x01", "image/png"),),
        (Audio(b"\x00\x01", "audio/wav"),),
        (File("bin:///d", b"\x00\x01"),),
    ]


async def test_what_is_supplied_goes_with_a_reading_too() -> None:
    server = ForeignServer()
    async with McpToolProvider(server.config(), meta_supplier=lambda name, context: {"tenant": name}) as provider:
        await provider.resources.read("foreign", A.uri, context=InvocationContext(meta={"traceparent": "00-1"}))
    assert server.told == {"traceparent": "00-1", "tenant": "foreign"}


async def test_a_program_that_asks_for_what_is_not_there_is_told() -> None:
    async with McpToolProvider(ForeignServer().config()) as provider:
        with pytest.raises(DefinitionError, match="there is no server 'other'; servers: foreign"):
            await provider.resources.list("other")
        with pytest.raises(ServerRefusedError, match="server 'foreign', requesting resources/read"):
            await provider.resources.read("foreign", "file:///nothing")


async def test_resources_are_bounded_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with McpToolProvider(ForeignServer().config()) as provider:
        monkeypatch.setattr(resources, "MAX_RESOURCES", 2)
        assert len(await provider.resources.list("foreign")) == 2
        monkeypatch.setattr(resources, "MAX_RESOURCES", 1)
        with pytest.raises(WireError, match="the server 'foreign' lists more than 1 resources"):
            await provider.resources.list("foreign")


@pytest.mark.parametrize("trusted", [False, True])
async def test_the_two_tools_only_read_where_every_server_is_trusted(trusted: bool) -> None:
    servers = [ForeignServer().config(trusted=True, name="one"), ForeignServer().config(trusted=trusted)]
    async with McpToolProvider(servers, resources=True) as provider:
        tools = [provider.tools.get(name) for name in ("list_resources", "read_resource")]
        assert [tool.trusted_annotations.read_only for tool in tools] == [True if trusted else None] * 2


async def test_a_model_lists_and_reads_by_two_tools_where_it_may() -> None:
    async with McpToolProvider(ForeignServer("f").config()) as provider:
        assert names(provider) == ["f"]
    async with McpToolProvider(ForeignServer("list_resources").config(), resources=True) as provider:
        assert names(provider) == ["foreign_list_resources", "list_resources", "read_resource"]
        every = json.loads((await provider.call("list_resources")).text)
        one = json.loads((await provider.call("list_resources", {"server": "foreign"})).text)
        a, b = every["resources"]
        assert one == every
        assert (a["uri"], a["description"], b["uri"]) == (A.uri, "A file.", B.uri)
        read = await provider.call("read_resource", {"server": "foreign", "uri": A.uri})
        assert read.content == (Text("inside"),)


async def test_a_model_is_told_which_servers_could_not_be_asked() -> None:
    gone = ServerConfig(name="gone", transport=NOWHERE, connect_wait_seconds=0.1)
    async with McpToolProvider([gone, ForeignServer().config()], resources=True) as provider:
        listing = json.loads((await provider.call("list_resources")).text)
    assert len(listing["resources"]) == 2
    assert list(listing["unavailable"]) == ["gone"]
    assert "command not found:" in listing["unavailable"]["gone"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "server: is required; uri: is required"),
        ({"server": "foreign", "uri": [5]}, "uri: should be a valid string, got [5]"),
        ({"server": "other", "uri": "x"}, "there is no server 'other'; servers: foreign"),
        ({"server": "foreign", "uri": "file:///nothing"}, "the server 'foreign', requesting resources/read: "),
    ],
)
async def test_a_model_that_asks_wrongly_is_told(arguments: dict[str, object], complaint: str) -> None:
    async with McpToolProvider(ForeignServer().config(), resources=True) as provider:
        result = await provider.call("read_resource", arguments)
    assert result.is_error
    assert complaint in result.text

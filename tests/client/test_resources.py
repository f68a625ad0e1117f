from __future__ import annotations

import json
from typing import Any

import pytest

from bridge import Audio, DefinitionError, File, Image, InvocationContext, ResourceBox, ServerConfig, Text, resource
from bridge.client import McpToolProvider, MemoryTransport
from bridge.client.connection import listing
from bridge.errors import ResourceNotFoundError, ServerAnswerError, ServerRefusedError, ServerUnavailableError
from bridge.resources import Resource
from bridge.server import Server
from tests.client.conftest import python_config
from tests.client.foreign import ForeignServer
from tests.client.test_provider import NOWHERE, add, memory_config, names

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

A, B = "file:///a.txt", "pic:///b"


async def test_a_program_lists_all_pages_and_reads_each_kind() -> None:
    async with McpToolProvider([ForeignServer().config(), memory_config("one", add)]) as provider:
        a, b = await provider.resources.list("foreign")
        assert isinstance(a, Resource)
        assert isinstance(b, Resource)
        assert (a.uri, a.name, a.description, a.mime_type, a.size) == (
            f"foreign+{A}",
            "a",
            "A file.",
            "text/plain",
            2,
        )
        assert (b.uri, b.server) == (f"foreign+{B}", "foreign")
        assert await provider.resources.list("one") == ()
        read = [await provider.resources.read(f"foreign+{uri}") for uri in (A, B, "snd:///c", "bin:///d")]
    assert [file.uri for (file,) in read] == [f"foreign+{uri}" for uri in (A, B, "snd:///c", "bin:///d")]
    assert [file.inline() for (file,) in read] == [
        Text("inside"),
        Image(b"\x00\x01", "image/png"),
        Audio(b"\x00\x01", "audio/wav"),
        File("foreign+bin:///d", b"\x00\x01"),
    ]


async def test_what_is_supplied_goes_with_a_reading_too() -> None:
    server = ForeignServer()
    async with McpToolProvider(server.config(), meta_supplier=lambda name, context: {"tenant": name}) as provider:
        await provider.resources.read(A, context=InvocationContext(meta={"traceparent": "00-1"}))
    told = {key: value for key, value in server.told.items() if key != "progress_token"}
    assert told == {"traceparent": "00-1", "tenant": "foreign"}


async def test_a_program_that_asks_for_what_is_not_there_is_told() -> None:
    async with McpToolProvider([ForeignServer().config(), memory_config("one", add)]) as provider:
        with pytest.raises(DefinitionError, match="there is no server 'other'; servers: foreign, one"):
            await provider.resources.list("other")
        with pytest.raises(DefinitionError, match="there is no server 'other'; servers: foreign, one"):
            await provider.prompts.list("other")
        with pytest.raises(ServerRefusedError, match="server 'foreign', requesting resources/read"):
            await provider.resources.read("foreign+file:///nothing")
        with pytest.raises(ResourceNotFoundError, match="there is no resource 'other"):
            await provider.resources.read("other+file:///nothing")


async def test_programs_that_use_tools_alone_request_nothing_else() -> None:
    server = ForeignServer("f")
    async with McpToolProvider(server.config()) as provider:
        await provider.call("f")
        await provider.refresh()
        assert server.resource_lists == 0
        await provider.resources.read(A)
        assert server.resource_lists == 0, "with one server, its URI tells"
        await provider.resources.list()
        assert server.resource_lists == 2, "two pages, once"
        await provider.resources.list()
        assert server.resource_lists == 4, "the server neither announces changes nor lets lists be kept"
        await provider.refresh()
        assert server.resource_lists == 6
    async with McpToolProvider(server.config(), features=["resources"]) as provider:
        assert server.resource_lists == 8
        assert len(provider.resources) == 2


async def test_a_server_that_cannot_list_is_named_and_costs_the_others_nothing() -> None:
    gone = ServerConfig(name="gone", transport=NOWHERE, connect_wait_seconds=0.1)
    async with McpToolProvider([gone, ForeignServer().config()]) as provider:
        assert [each.name for each in await provider.resources.list()] == ["a", "b"]
        assert await provider.prompts.list() == ()
        for items in (provider.resources, provider.prompts):
            with pytest.raises(ServerUnavailableError, match="command not found"):
                await items.list("gone")


async def test_resources_are_bounded_over_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with McpToolProvider(ForeignServer().config()) as provider:
        monkeypatch.setattr(listing, "MAX_RESOURCES", 1)
        with pytest.raises(ServerAnswerError, match="it lists more than 1 resources"):
            await provider.resources.list("foreign")


MALFORMED = """
import json, sys
ITEMS = {
    "resources/list": {
        "resources": [{"uri": "a://b", "name": "good"}, {"uri": "c://d"}, {"uri": "none", "name": "bad"}]
    },
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "t://{x:3}", "name": "any"}]},
    "prompts/list": {"prompts": [{"name": "good"}, {"name": 5}, {"name": "good"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"resources": {}, "prompts": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
    elif "id" in message:
        result = ITEMS.get(message["method"], {"tools": []})
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_malformed_items_are_left_out_with_the_reason() -> None:
    config = python_config(MALFORMED, protocol="legacy")
    async with McpToolProvider(config, features=["resources", "prompts"]) as provider:
        assert [each.name for each in provider.resources] == ["good", "any"], "templates of others may be of level 4"
        assert [each.name for each in provider.prompts] == ["good"]
        (status,) = provider.status()
    assert len(status.skipped) == 4
    missing, schemeless, number, twice = status.skipped
    assert missing.startswith("the resource 'c://d' is malformed: ")
    assert schemeless.startswith("the resource 'none' needs a URI with a scheme")
    assert number.startswith("the prompt {'name': 5} is malformed: ")
    assert twice == "the prompt 'good' is listed twice"


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
        assert (a["server"], a["uri"], a["description"], b["uri"]) == ("foreign", A, "A file.", B)
        read = await provider.call("read_resource", {"uri": A})
        assert read.content == (Text("inside"),)


async def test_a_model_is_told_which_servers_could_not_be_asked() -> None:
    gone = ServerConfig(name="gone", transport=NOWHERE, connect_wait_seconds=0.1)
    async with McpToolProvider([gone, ForeignServer().config()], resources=True) as provider:
        found = json.loads((await provider.call("list_resources")).text)
    assert len(found["resources"]) == 2
    assert list(found["unavailable"]) == ["gone"]
    assert "command not found:" in found["unavailable"]["gone"]


@pytest.mark.parametrize(
    ("name", "arguments", "complaint"),
    [
        ("read_resource", {}, "uri: is required"),
        ("read_resource", {"uri": [5]}, "uri: should be a valid string, got [5]"),
        ("list_resources", {"server": "other"}, "there is no server 'other'; servers: foreign"),
        ("read_resource", {"uri": "file:///nothing"}, "the server 'foreign', requesting resources/read: "),
    ],
)
async def test_a_model_that_asks_wrongly_is_told(name: str, arguments: dict[str, object], complaint: str) -> None:
    async with McpToolProvider(ForeignServer().config(), resources=True) as provider:
        result = await provider.call(name, arguments)
    assert result.is_error
    assert complaint in result.text


async def test_the_most_specific_template_of_several_servers_reads_a_uri() -> None:
    def serving(name: str, *templates: str) -> ServerConfig:
        def reader(template: str) -> Any:
            @resource(template, name=name)
            def read(path: str) -> str:
                return f"{name} {path}"

            return read

        publisher = Server(ResourceBox(*map(reader, templates)), name=name)
        return ServerConfig(name=name, transport=MemoryTransport(publisher))

    servers = [serving("wide", "docs://{+path}"), serving("narrow", "docs://a/{+path}", "docs:///{path}/b")]
    for ordered in (servers, servers[::-1]):
        async with McpToolProvider(ordered, prefix="on_collision") as provider:
            for uri, text in (
                ("docs://a/b", "narrow b"),
                ("docs:///x/b", "narrow x"),
                ("docs://c", "wide c"),
                ("docs:///x/c", "wide /x/c"),
            ):
                (file,) = await provider.resources.read(uri)
                assert file.content == text

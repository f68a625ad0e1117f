"""Resources and prompts through a gateway, from callers of each era to servers of each era."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    ClientHandlers,
    File,
    HttpTransport,
    InvocationContext,
    ResourceBox,
    ResourceLink,
    ServerConfig,
    ToolBox,
    resource,
    tool,
)
from bridge import prompt as prompt_
from bridge.client import Connection, McpToolProvider, MemoryTransport
from bridge.client.connection.list_methods import PROMPTS, RESOURCES, TEMPLATES
from bridge.errors import ServerRefusedError
from bridge.gateway import Gateway
from bridge.prompts import PromptBox
from bridge.server import Features, Server, http_app
from bridge.server.limits import Limits, Rate
from bridge.wire.extension import APPS
from tests.client.served_features import FEATURES, all_bytes
from tests.client.test_remote_features import HANDLERS
from tests.gateway.between import DEADLINE_SECONDS, STATE_KEYS, between, caller
from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json

ERAS = ("2026-07-28", "legacy")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("deadline"),
    pytest.mark.parametrize("server_era", ERAS),
    pytest.mark.parametrize("era", ERAS),
]

ASSISTANT = Features(
    tools=FEATURES.tools,
    resources=ResourceBox(*FEATURES.resources or (), all_bytes),
    prompts=FEATURES.prompts,
)


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


def served(features: object, era: str, name: str = "notes") -> ServerConfig:
    """Return the configuration of a server in this process."""
    pin: Any = era
    transport = MemoryTransport(Server(features, name=name, state_keys=STATE_KEYS))
    return ServerConfig(name=name, transport=transport, protocol=pin)


async def said(connection: Connection, method: str, params: Json) -> Any:
    """Return the result of a request without the members of its era, or its error."""
    try:
        result = await connection.request(method, params)
    except ServerRefusedError as error:
        return error.code, error.message, error.data
    return {key: value for key, value in result.items() if key not in {"_meta", "resultType", "ttlMs", "cacheScope"}}


REQUESTS: list[tuple[str, Json]] = [
    ("resources/read", {"uri": "notes://all"}),
    ("resources/read", {"uri": "notes://milk?style=loud"}),
    ("resources/read", {"uri": "bytes://all"}),
    ("resources/read", {"uri": "notes://nothing"}),
    ("resources/read", {"uri": "notes://milk?style=huge"}),
    ("resources/read", {"uri": "question://dish"}),
    ("prompts/get", {"name": "review", "arguments": {"code": "pass"}}),
    ("prompts/get", {"name": "review"}),
    ("prompts/get", {"name": "nothing"}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "notes://{title}{?style}"},
            "argument": {"name": "title", "value": "mi"},
        },
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "pe"}},
    ),
]


async def test_one_server_answers_through_a_gateway_as_directly(era: str, server_era: str) -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway([served(ASSISTANT, server_era)]))
        through = await stack.enter_async_context(caller(gateway, era=era, handlers=HANDLERS))
        direct = await stack.enter_async_context(Connection(served(ASSISTANT, era), handlers=HANDLERS))
        for method in (RESOURCES, TEMPLATES, PROMPTS):
            assert await through.list_items(method) == await direct.list_items(method)
        for method_name, params in REQUESTS:
            assert await said(through, method_name, params) == await said(direct, method_name, params), params


async def test_a_refusal_of_a_read_keeps_its_data(era: str, server_era: str) -> None:
    limits = Limits(tool_rates={"titles": Rate(1, 1000)})
    publisher = Server(ASSISTANT, name="notes", state_keys=STATE_KEYS, limits=limits)
    pin: Any = server_era
    server = ServerConfig(name="notes", transport=MemoryTransport(publisher), protocol=pin)
    async with between(server, era=era) as (_, through):
        await through.request("resources/read", {"uri": "notes://all"})
        code, _, data = await said(through, "resources/read", {"uri": "notes://all"})
    assert (code, data.keys()) == (-32005, {"retryAfterSeconds"})


@resource("ui://page", mime_type="text/html;profile=mcp-app", metadata={"ui": {"csp": {}}})
def page() -> str:
    """A page of an app."""
    return "<p>"


@tool(metadata={"ui": {"resourceUri": "ui://page", "visibility": ["model"]}, "ui/resourceUri": "ui://page"})
def show() -> list[Any]:
    """Show the page."""
    return [File("ui://page", "<p>", "text/html"), ResourceLink("notes://milk", "milk"), "said"]


@prompt_
def look() -> File:
    """Look at the page."""
    return File("ui://page", "<p>", "text/html")


APP = Features(tools=ToolBox(show), resources=ResourceBox(page), prompts=PromptBox(look))


async def test_two_servers_apps_stay_two(era: str, server_era: str) -> None:
    servers = [served(APP, server_era, "One"), served(APP, server_era, "two")]
    async with between(*servers, era=era) as (_, connection):
        tools = (await connection.list_tools()).tools
        assert [(each["name"], each["_meta"]["ui"], each["_meta"]["ui/resourceUri"]) for each in tools] == [
            ("One_show", {"resourceUri": "ui://one/page", "visibility": ["model"]}, "ui://one/page"),
            ("two_show", {"resourceUri": "ui://two/page", "visibility": ["model"]}, "ui://two/page"),
        ]
        listed = (await connection.list_items(RESOURCES)).items
        assert [(each["uri"], each["_meta"]) for each in listed] == [
            ("ui://one/page", {"ui": {"csp": {}}}),
            ("ui://two/page", {"ui": {"csp": {}}}),
        ]
        read = await connection.request("resources/read", {"uri": "ui://two/page"})
        assert read["contents"][0]["uri"] == "ui://two/page"
        embedded, link, text = (await connection.call_tool("two_show", {}))["content"]
        assert (embedded["resource"]["uri"], link["uri"]) == ("ui://two/page", "two+notes://milk")
        assert text["text"] == "said"
        rendered = await connection.request("prompts/get", {"name": "One_look"})
        assert rendered["messages"][0]["content"]["resource"]["uri"] == "ui://one/page"


@pytest.mark.parametrize("shows_apps", [True, False])
async def test_a_server_knows_whether_apps_can_be_shown(era: str, server_era: str, shows_apps: bool) -> None:
    @tool
    def extensions(context: InvocationContext) -> dict[str, Any]:
        """The extensions that the client declares."""
        return dict(context.client_capabilities.get("extensions") or {})

    async with AsyncExitStack() as stack:
        origin = stack.enter_context(http.serving(http_app(extensions)))
        pin: Any = server_era
        server = ServerConfig(name="apps", transport=HttpTransport(f"{origin}/mcp"), protocol=pin)
        gateway = await stack.enter_async_context(Gateway([server]))
        handlers = ClientHandlers(extensions=(APPS,) if shows_apps else ())
        through = await stack.enter_async_context(caller(gateway, era=era, handlers=handlers))
        declared = (await through.call_tool("extensions", {}))["structuredContent"]
    # A session of the handshake era is that of all callers.
    assert (APPS.id in declared) is (shows_apps or server_era == "legacy")
    if APPS.id in declared:
        assert declared[APPS.id] == APPS.client_settings


async def test_local_resources_and_prompts_come_first(era: str, server_era: str) -> None:
    @prompt_
    def review() -> str:
        """Review nothing."""
        return "nothing"

    local = Features(resources=ResourceBox(page), prompts=PromptBox(review))
    async with between(served(ASSISTANT, server_era), era=era, local=local) as (_, connection):
        listed = [each["uri"] for each in (await connection.list_items(RESOURCES)).items]
        assert listed[0] == "ui://page"
        assert "notes://all" in listed
        assert [each["name"] for each in (await connection.list_items(PROMPTS)).items] == ["review", "notes_review"]


async def test_a_local_template_reads_its_uris_whatever_a_server_lists(era: str, server_era: str) -> None:
    @resource("users://{who}")
    def user(who: str) -> str:
        return f"local {who}"

    @resource("users://1")
    def first() -> str:
        return "remote"

    @resource("users://{who}/of/{team}")
    def member(who: str, team: str) -> str:
        return "remote"

    @resource("users://1/photo")
    def photo() -> str:
        return "remote"

    @resource("users://{who}/{part}")
    def part(who: str, part: str) -> str:
        return "local part"

    server = served(Features(resources=ResourceBox(first, member, photo)), server_era)
    local = Features(resources=ResourceBox(user, part))
    async with between(server, era=era, local=local) as (_, connection):
        read = {}
        for uri in ("users://1", "users://2", "users://1/photo", "users://1/of/a"):
            (content,) = (await connection.request("resources/read", {"uri": uri}))["contents"]
            read[uri] = content["text"]
        listed = [each["uri"] for each in (await connection.list_items(RESOURCES)).items]
    assert read == {
        "users://1": "local 1",
        "users://2": "local 2",
        "users://1/photo": "local part",
        "users://1/of/a": "remote",
    }
    assert listed == []


async def test_a_box_of_both_reads_local_templates_first(era: str, server_era: str) -> None:
    @resource("users://{who}")
    def user(who: str) -> str:
        return f"local {who}"

    @resource("users://1")
    def first() -> str:
        return "remote"

    async with McpToolProvider(served(Features(resources=ResourceBox(first)), server_era)) as provider:
        await provider.resources.list()
        features = Features.of(ResourceBox(user), provider.resources)
        published = Server(features, name="both", state_keys=STATE_KEYS)
        pin: Any = era
        config = ServerConfig(name="both", transport=MemoryTransport(published), protocol=pin)
        async with Connection(config) as connection:
            (content,) = (await connection.request("resources/read", {"uri": "users://1"}))["contents"]
    assert content["text"] == "local 1"


async def test_all_who_watch_share_one_subscription(era: str, server_era: str) -> None:
    features = Features(
        tools=FEATURES.tools, resources=ResourceBox(*FEATURES.resources or ()), prompts=FEATURES.prompts
    )
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway([served(features, server_era)]))
        publisher = Server(gateway.features, name="gateway", state_keys=STATE_KEYS)
        changes, receive = anyio.create_memory_object_stream[str](10)
        stops = []
        for name in ("one", "two"):
            config = ServerConfig(name=name, transport=MemoryTransport(publisher), protocol=era)  # type: ignore[arg-type]
            provider = await stack.enter_async_context(McpToolProvider(config))
            stops.append(await provider.resources.watch("notes://milk", changes.send_nowait))
        wanted = gateway.provider.connections["notes"]._events.wanted
        assert wanted.uris == {"notes://milk"}
        assert features.resources is not None
        features.resources.updated("notes://milk")
        assert [await receive.receive(), await receive.receive()] == ["notes://milk"] * 2
        changed = wanted.changed
        for stop in stops:
            stop()
        await changed.wait()
        assert wanted.uris == set()
        changes.close()
        receive.close()


async def test_changed_lists_are_announced(era: str, server_era: str) -> None:
    features = Features(resources=ResourceBox(page), prompts=PromptBox(look))
    async with (
        Gateway([served(features, server_era)]) as gateway,
        McpToolProvider(
            ServerConfig(
                name="gateway",
                transport=MemoryTransport(Server(gateway.features, name="gateway")),
                protocol=era,  # type: ignore[arg-type]
            ),
            features=["resources", "prompts"],
        ) as provider,
    ):
        assert features.resources is not None
        assert features.prompts is not None
        changed, rendered = anyio.Event(), anyio.Event()
        provider.resources.on_change(changed.set)
        provider.prompts.on_change(rendered.set)
        features.resources.add(all_bytes)
        features.prompts.remove("look")
        await changed.wait()
        await rendered.wait()
        assert "bytes://all" in provider.resources
        assert len(provider.prompts) == 0

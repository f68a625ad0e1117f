"""Extensions of a configuration pass through a gateway in both directions; others do not."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ClientHandlers, HttpTransport, ServerConfig, StdioTransport, tool
from bridge.client import Connection, MemoryTransport
from bridge.gateway import Gateway
from bridge.hosting.serve import http_protocol
from bridge.server import Extension, Features, Profile, Server, http_app
from bridge.tools.toolbox import ToolBox
from bridge.wire.extension import extensions_of
from tests import forks
from tests.client.http_client import sent_by
from tests.gateway.between import DEADLINE_SECONDS, STATE_KEYS, between
from tests.gateway.conftest import write_config
from tests.gateway.extended import COLOURS, SOUNDS, features
from tests.gateway.test_calls import served as serving
from tests.processes import ROOT
from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client.transports.transport import Transport
    from bridge.wire.extension import Extensions

MODERN = "2026-07-28"
ERAS = (MODERN, "legacy")
OF_CALLER = ClientHandlers(extensions={COLOURS: {"palette": 256}, SOUNDS: {"volume": 11}})
CONFIGURED = {COLOURS: {"palette": 4}}
PATH = str(Path(__file__).with_name("extended.py")) + ":features"

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


@pytest.fixture
def anyio_backend() -> str:
    """The backend of uvicorn."""
    return "asyncio"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


def config(transport: Transport, era: str, **settings: Any) -> ServerConfig:
    """Return the configuration of the server, or of the gateway."""
    pin: Any = era
    return ServerConfig(name="extended", transport=transport, protocol=pin, **settings)


async def carried(stack: AsyncExitStack, served: Features, carrier: str) -> Transport:
    """Serve features in this process by a transport."""
    if carrier == "http":
        app = http_app(served)
        direct = http_protocol(app.pre_asgi_handler(lambda: True))
        return HttpTransport(await stack.enter_async_context(serving(app, direct)) + "/mcp")
    return MemoryTransport(Server(served, name="extended", state_keys=STATE_KEYS))


def settings_in(extensions: Extensions) -> dict[str, Any]:
    """Return the settings of extensions."""
    return {each.id: each.settings for each in extensions_of(extensions)}


def announced(connection: Connection) -> dict[str, Any]:
    """Return the extensions that a server announces, without those of the protocol itself."""
    assert connection.server_info is not None
    extensions = connection.server_info.capabilities.get("extensions") or {}
    return {key: extensions[key] for key in extensions if key.startswith("com.example/")}


async def declarations(connection: Connection) -> list[Any]:
    """Return the extensions that a server was told of in a call, a read and a prompt."""
    read = await connection.request("resources/read", {"uri": "declared://all"})
    rendered = await connection.request("prompts/get", {"name": "declared"})
    return [
        (await connection.call_tool("declared", {}))["structuredContent"],
        json.loads(read["contents"][0]["text"]),
        json.loads(rendered["messages"][0]["content"]["text"]),
    ]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("carrier", ["memory", "http"])
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_configured_extension_passes_and_others_do_not(
    era: str, server_era: str, carrier: str, own: bool
) -> None:
    async with AsyncExitStack() as stack:
        server = config(await carried(stack, features, "http"), server_era, extensions=CONFIGURED)
        gateway = await stack.enter_async_context(Gateway([sent_by(server, own=own)]))
        transport = await carried(stack, gateway.features, carrier)
        for handlers in (OF_CALLER, ClientHandlers()):
            async with Connection(config(transport, era), handlers=handlers) as connection:
                # A session of the handshake era is that of all callers.
                of_request = {COLOURS: {"palette": 256}} if handlers is OF_CALLER else {}
                expected = of_request if server_era == MODERN else CONFIGURED
                assert await declarations(connection) == [expected] * 3
                assert announced(connection) == {COLOURS: {"palette": 16}}


@pytest.mark.parametrize("era", ERAS)
async def test_a_configured_extension_passes_over_stdio(era: str, tmp_path: Path) -> None:
    entry = forks.entry("-m", "bridge", "serve", PATH, cwd=str(ROOT), protocol=era, extensions=CONFIGURED)
    program, *rest = forks.command("-m", "bridge", "serve", write_config(tmp_path / "mcp.json", extended=entry))
    transport = StdioTransport(program, args=tuple(rest), cwd=str(ROOT))
    async with Connection(config(transport, era), handlers=OF_CALLER) as connection:
        assert await declarations(connection) == [{COLOURS: {"palette": 256}} if era == MODERN else CONFIGURED] * 3
        assert announced(connection) == {COLOURS: {"palette": 16}}


@pytest.mark.parametrize("era", ERAS)
async def test_an_extension_that_is_not_configured_does_not_pass(era: str) -> None:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway([config(await carried(stack, features, "memory"), era)]))
        through = Connection(config(await carried(stack, gateway.features, "memory"), era), handlers=OF_CALLER)
        await stack.enter_async_context(through)
        assert await declarations(through) == [{}] * 3
        assert announced(through) == {}


@pytest.mark.parametrize("era", ERAS)
async def test_a_program_declares_the_extensions_of_a_configuration(era: str) -> None:
    async with AsyncExitStack() as stack:
        server = config(await carried(stack, features, "http"), era, extensions=CONFIGURED)
        handlers = ClientHandlers(extensions={COLOURS: {"palette": 2}, SOUNDS: {}})
        connection = await stack.enter_async_context(Connection(server, handlers=handlers))
        assert await declarations(connection) == [{**CONFIGURED, SOUNDS: {}}] * 3
        assert announced(connection) == features.extensions


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_of_several_servers_gives_the_settings(era: str) -> None:
    def server(name: str, **extensions: Any) -> ServerConfig:
        of_server = replace(features, extensions={f"com.example/{key}": each for key, each in extensions.items()})
        transport = MemoryTransport(Server(of_server, name=name))
        names: dict[str, Any] = {f"com.example/{key}": {} for key in ("colours", "sounds", "own")}
        return replace(config(transport, era, extensions=names), name=name)

    servers = (
        server("one", colours={"of": "one"}, own={"of": "one"}),
        server("two", colours={"of": "two"}, sounds={"of": "two"}, other={}),
    )
    local = replace(Features(tools=ToolBox()), extensions={"com.example/own": {"of": "gateway"}})
    async with between(*servers, era=era, local=local) as (gateway, connection):
        expected = {
            "com.example/own": {"of": "gateway"},
            "com.example/colours": {"of": "one"},
            "com.example/sounds": {"of": "two"},
        }
        assert announced(connection) == expected
        await gateway.reconfigure(servers[1:])
        assert settings_in(gateway.features.extensions) == {**expected, "com.example/colours": {"of": "two"}}


@pytest.mark.parametrize("http_protocol", ["h11", "direct"])
async def test_a_later_extension_is_announced(http_protocol: str) -> None:
    @tool
    def any_tool() -> None:
        """Do nothing."""

    extensions: dict[str, Any] = {}
    served = Features(tools=ToolBox(any_tool), extensions=extensions)
    with http.serving(http_app(served), http=http_protocol) as origin:
        for _ in range(2):
            for era in ERAS:
                async with Connection(config(HttpTransport(f"{origin}/mcp"), era)) as connection:
                    assert announced(connection) == extensions
            extensions[COLOURS] = {"palette": 16}


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (("sounds",), {COLOURS: ("sounds", [])}),
        (("local",), {COLOURS: (None, ["colours/mix"]), SOUNDS: (None, ["sounds/mix"])}),
    ],
)
async def test_a_profile_has_the_extensions_of_its_servers_alone(servers: tuple[str, ...], expected: Any) -> None:
    def own(name: str, method: str) -> Extension:
        return Extension(id=name, methods={method: lambda *_: {}})

    local = Features(extensions=[own(COLOURS, "colours/mix")])
    upstream = ServerConfig(
        name="sounds", transport=MemoryTransport(Server(features, name="sounds")), extensions={COLOURS: {}}
    )
    async with Gateway([upstream], local=local) as gateway:
        server = Server(gateway.features, name="gate", extensions=[own(SOUNDS, "sounds/mix")])
        found = server.with_profile(Profile(name="team", servers=servers)).features.extensions
        assert {each.id: (each.server, [*each.methods]) for each in extensions_of(found)} == expected

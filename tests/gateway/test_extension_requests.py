"""Requests and notifications of extensions through a gateway, of which it knows nothing but the names of extensions."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import HttpTransport, InvocationContext, Server, ServerConfig, resource, tool
from bridge.client import Connection, MemoryTransport
from bridge.errors import ServerRefusedError
from bridge.gateway import Gateway
from bridge.server import Extension, Features, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.tools.toolbox import ToolBox
from tests.gateway.between import STATE_KEYS
from tests.gateway.test_calls import served as serving
from tests.gateway.test_extensions import ERAS, carried
from tests.server.test_extensions import COLOURS, Client, Mixer, paint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
NAMED: dict[str, Json] = {COLOURS: {"depth": 1}}


@pytest.fixture
def anyio_backend() -> str:
    """The backend of uvicorn."""
    return "asyncio"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(60):
        yield


def server(era: Any, *extensions: Extension, name: str = "colours", **settings: Any) -> ServerConfig:
    """Return the configuration of a server in this process with extensions."""
    served = Server([paint], name=name, extensions=extensions)
    return ServerConfig(name=name, transport=MemoryTransport(served), protocol=era, **{"extensions": NAMED, **settings})


def caller(transport: Any, era: Any, client: Client | None = None) -> Connection:
    """Return a caller of the gateway."""
    handlers = None if client is None else client.handlers
    return Connection(ServerConfig(name="gateway", transport=transport, protocol=era), handlers=handlers)


@pytest.mark.parametrize("carrier", ["memory", "http"])
@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_requests_questions_and_notifications_pass_in_both_directions(
    era: str, server_era: str, carrier: str
) -> None:
    mixer, client = Mixer(), Client()
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway([server(server_era, mixer.extension)]))
        transport = await carried(stack, gateway.features, carrier)
        connection = await stack.enter_async_context(caller(transport, era, client))
        assert (await connection.request("colours/mix", {"parts": ["red", "blue"]}))["colour"] == "red+blue"
        assert client.received == [{"parts": ["red", "blue"]}]
        assert (await connection.request("colours/name"))["name"] == "ochre"
        connection.notify("notifications/colours/wanted", {"colour": "red"})
        await mixer.arrived.wait()
        assert mixer.received == [({"colour": "red"}, True)]
        with pytest.raises(ServerRefusedError) as unknown:
            await connection.request("colours/wash")
        assert unknown.value.code == -32601


@pytest.mark.parametrize("server_era", ERAS)
async def test_a_notification_of_a_tool_passes_with_its_call(server_era: str) -> None:
    @tool
    async def notify(context: InvocationContext) -> str:
        """Notify the caller."""
        await context.notify("notifications/colours/mixed", {"by": "a tool"})
        return "done"

    client = Client()
    behind = http_app(Server([notify], name="colours", extensions=NAMED))
    async with AsyncExitStack() as stack:
        transport = HttpTransport(await stack.enter_async_context(serving(behind)) + "/mcp")
        pin: Any = server_era
        config = ServerConfig(name="colours", transport=transport, protocol=pin, extensions=NAMED)
        gateway = await stack.enter_async_context(Gateway([config]))
        through = await carried(stack, gateway.features, "http")
        connection = await stack.enter_async_context(caller(through, "2026-07-28", client))
        assert (await connection.call_tool("notify", {}))["content"][0]["text"] == "done"
        assert client.received == [{"by": "a tool"}]


async def test_an_extension_that_is_not_configured_passes_nothing() -> None:
    mixer = Mixer()
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway([server("2026-07-28", mixer.extension, extensions={})]))
        transport = MemoryTransport(Server(gateway.features, name="gateway"))
        connection = await stack.enter_async_context(caller(transport, "2026-07-28"))
        connection.notify("notifications/colours/wanted", {})
        with pytest.raises(ServerRefusedError) as unknown:
            await connection.request("colours/mix", {"parts": []})
        assert unknown.value.code == -32601
    assert mixer.received == []


async def test_the_first_server_that_has_the_method_answers_and_a_uri_names_its_own() -> None:
    def of(name: str, method: str) -> ServerConfig:
        methods = {method: lambda params, _: {"by": name, **params}}
        return server("2026-07-28", Extension(id=COLOURS, settings={"of": name}, methods=methods), name=name)

    servers = [of("one", "x/first"), of("two", "x/second"), of("three", "x/second")]
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(Gateway(servers))
        transport = MemoryTransport(Server(gateway.features, name="gateway", state_keys=STATE_KEYS))
        connection = await stack.enter_async_context(caller(transport, "2026-07-28"))
        assert (await connection.request("x/first"))["by"] == "one"
        assert (await connection.request("x/second"))["by"] == "two"
        named = await connection.request("x/second", {"uri": "three+x://a"})
        assert (named["by"], named["uri"]) == ("three", "x://a")


async def test_a_local_extension_merges_the_settings_of_servers_and_answers_itself() -> None:
    methods: Any = {"colours/mix": lambda *_: {"colour": "of the gateway"}}
    local = Extension(
        id=COLOURS,
        settings={"palette": 2},
        methods=methods,
        merge=lambda all_settings: {"palette": sum(each["palette"] for each in all_settings)},
    )
    servers = [server("2026-07-28", Mixer().extension, name=name) for name in ("one", "two")]
    async with AsyncExitStack() as stack:
        own = Features(tools=ToolBox(), extensions=[local])
        gateway = await stack.enter_async_context(Gateway(servers, local=own))
        transport = MemoryTransport(Server(gateway.features, name="gateway"))
        connection = await stack.enter_async_context(caller(transport, "2026-07-28"))
        assert connection.server_info is not None
        assert connection.server_info.capabilities["extensions"][COLOURS] == {"palette": 34}
        assert (await connection.request("colours/mix"))["colour"] == "of the gateway"


@pytest.mark.parametrize("era", ERAS)
async def test_a_caller_is_told_what_it_may_use(era: Any) -> None:
    """Extensions, resources, prompts and missing servers of others are neither announced nor reached."""

    @resource("secret://plan", name="two_plan")
    def plan() -> str:
        return "nothing"

    keys = ApiKeys(
        ApiKey("all", "a-key-of-all-that-is-long-enough"),
        ApiKey("one", "a-key-of-one-that-is-long-enough", tools=("one_*",)),
        ApiKey("two", "a-key-of-two-that-is-long-enough", tools=("two_*",)),
    )
    one = ServerConfig(name="one", transport=MemoryTransport(Server([paint], name="one")), protocol=era)
    down = ServerConfig(name="hidden", transport=HttpTransport("http://127.0.0.1:9/mcp"))
    async with AsyncExitStack() as stack:
        servers = [one, server(era, Mixer().extension, name="two"), down]
        local = Features.of([plan])
        gateway = await stack.enter_async_context(Gateway(servers, local=local, start_seconds=0.5))
        app = http_app(Server(gateway.features, name="gateway"), auth=Auth(keys))
        url = await stack.enter_async_context(serving(app)) + "/mcp"
        seen = {}
        for key in ("all", "one", "two"):
            transport = HttpTransport(url, headers={"Authorization": f"Bearer a-key-of-{key}-that-is-long-enough"})
            async with caller(transport, era, Client()) as connection:
                info = connection.server_info
                assert info is not None
                seen[key] = (
                    COLOURS in info.capabilities.get("extensions", {}),
                    {"resources", "prompts"} & info.capabilities.keys(),
                    "'hidden'" in str(info.instructions),
                )
                if key == "all":
                    assert "colour" in await connection.request("colours/mix", {"parts": []})
                else:
                    with pytest.raises(ServerRefusedError) as refused:
                        await connection.request("colours/mix", {"parts": []})
                    assert refused.value.code == -32601
        assert seen == {
            "all": (True, {"resources", "prompts"}, True),
            "one": (False, set(), False),
            "two": (True, {"resources"}, False),
        }

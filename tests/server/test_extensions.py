"""Extensions of a server: what it announces, answers and receives, and what its client declares and receives."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ClientHandlers, DefinitionError, HttpTransport, InvocationContext, Server, ServerConfig, tool
from bridge.client import Connection, MemoryTransport
from bridge.errors import ServerRefusedError
from bridge.server import Extension, http_app
from bridge.tools import ElicitationAnswer
from tests.gateway.test_calls import served as serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json

MODERN = "2026-07-28"
BOTH = pytest.mark.parametrize("era", [MODERN, "legacy"])
CARRIERS = pytest.mark.parametrize("carrier", ["memory", "http"])
COLOURS = "com.example/colours"

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


@pytest.fixture
def anyio_backend() -> str:
    """The backend of uvicorn."""
    return "asyncio"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(30):
        yield


class Mixer:
    """An extension that mixes colours, and records what its clients notify it of."""

    def __init__(self, **settings: Any) -> None:
        self.received: list[tuple[Json, bool]] = []
        self.arrived = anyio.Event()
        methods: Any = {"colours/mix": self.mix, "colours/name": self.name, "colours/fail": self.fail}
        self.extension = Extension(
            id=COLOURS,
            settings={"palette": 16},
            methods=methods,
            notifications={"notifications/colours/wanted": self.wanted},
            **settings,
        )

    async def mix(self, params: Json, context: InvocationContext) -> Json:
        await context.progress(1, 2)
        await context.notify("notifications/colours/mixed", {"parts": params["parts"]})
        return {"colour": "+".join(params["parts"])}

    async def name(self, params: Json, context: InvocationContext) -> Json:
        answer = await context.elicit("What is it called?", {"type": "object", "properties": {"x": {"type": "string"}}})
        assert answer.content is not None
        return {"name": answer.content["x"]}

    def fail(self, params: Json, context: InvocationContext) -> Json:
        raise ValueError("a secret")

    def wanted(self, params: Json, context: InvocationContext) -> None:
        self.received.append((params, isinstance(context, InvocationContext)))
        self.arrived.set()


@tool
def paint() -> str:
    """Paint."""
    return "done"


async def _answer(*_: object) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"x": "ochre"})


class Client:
    """A client that declares the extension, and records the notifications of a server."""

    def __init__(self, **settings: Any) -> None:
        self.received: list[Json] = []
        self.extension = Extension(
            id=COLOURS,
            client_settings={"depth": 8},
            notifications={"notifications/colours/mixed": lambda params, _: self.received.append(params)},
            **settings,
        )
        self.handlers = ClientHandlers(elicitation=_answer, extensions=[self.extension])


async def connected(stack: Any, server: Server, carrier: str, era: Any, handlers: ClientHandlers | None) -> Connection:
    """Return a connection to a server in this process."""
    transport: Any = MemoryTransport(server)
    if carrier == "http":
        transport = HttpTransport(await stack.enter_async_context(serving(http_app(server))) + "/mcp")
    config = ServerConfig(name="colours", transport=transport, protocol=era)
    connection: Connection = await stack.enter_async_context(Connection(config, handlers=handlers))
    return connection


@BOTH
@CARRIERS
async def test_an_extension_answers_asks_and_notifies_in_both_directions(era: str, carrier: str) -> None:
    mixer, client = Mixer(needs_client=True), Client()
    async with AsyncExitStack() as stack:
        server = Server([paint], name="colours", extensions=[mixer.extension])
        connection = await connected(stack, server, carrier, era, client.handlers)
        assert connection.server_info is not None
        assert connection.server_info.capabilities["extensions"][COLOURS] == {"palette": 16}
        mixed = await connection.request("colours/mix", {"parts": ["red", "blue"]})
        assert mixed["colour"] == "red+blue"
        assert client.received == [{"parts": ["red", "blue"]}]
        assert (await connection.request("colours/name"))["name"] == "ochre"
        connection.notify("notifications/colours/wanted", {"colour": "red"})
        await mixer.arrived.wait()
        assert mixer.received == [({"colour": "red"}, True)]


@BOTH
async def test_what_an_extension_does_not_have_is_not_found_and_failures_stay_secret(era: str) -> None:
    async with AsyncExitStack() as stack:
        server = Server([paint], name="colours", extensions=[Mixer().extension])
        connection = await connected(stack, server, "memory", era, None)
        with pytest.raises(ServerRefusedError) as unknown:
            await connection.request("colours/wash")
        assert unknown.value.code == -32601
        with pytest.raises(ServerRefusedError) as failed:
            await connection.request("colours/fail")
        assert failed.value.code == -32603
        assert "secret" not in str(failed.value)


@BOTH
async def test_a_client_that_does_not_declare_a_needed_extension_is_refused(era: str) -> None:
    async with AsyncExitStack() as stack:
        server = Server([paint], name="colours", extensions=[Mixer(needs_client=True).extension])
        connection = await connected(stack, server, "memory", era, None)
        with pytest.raises(ServerRefusedError) as refused:
            await connection.request("colours/mix", {"parts": []})
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": {"extensions": {COLOURS: {}}}}


async def test_an_extension_of_the_modern_era_is_unknown_in_the_other() -> None:
    async with AsyncExitStack() as stack:
        server = Server([paint], name="colours", extensions=[Mixer(is_modern=True).extension])
        connection = await connected(stack, server, "memory", "legacy", Client(is_modern=True).handlers)
        assert connection.server_info is not None
        assert COLOURS not in connection.server_info.capabilities.get("extensions", {})
        with pytest.raises(ServerRefusedError) as refused:
            await connection.request("colours/mix", {"parts": []})
        assert refused.value.code == -32601


async def test_a_mounted_server_brings_its_extensions() -> None:
    async with AsyncExitStack() as stack:
        outer = Server(name="outer")
        connection = await connected(stack, outer, "memory", MODERN, None)
        outer.mount(Server([paint], name="colours", extensions=[Mixer().extension]), prefix="x")
        assert (await connection.request("colours/mix", {"parts": ["red"]}))["colour"] == "red"


async def test_an_extension_cannot_take_a_method_of_the_protocol() -> None:
    extension = Extension(id=COLOURS, methods={"tools/call": lambda *_: {}})
    with pytest.raises(DefinitionError, match=r"'com.example/colours' cannot answer 'tools/call'"):
        http_app(Server([paint], name="colours", extensions=[extension]))


async def test_the_method_of_a_notification_is_checked() -> None:
    with pytest.raises(DefinitionError, match="begins with 'notifications/', unlike 'colours/mixed'"):
        await InvocationContext().notify("colours/mixed")

"""Events of several servers, and local ones, through a gateway: names, origins, cursors, refusals, and webhooks."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from bridge import Gateway, McpToolProvider, Server, ServerConfig
from bridge.client import Connection, MemoryTransport
from bridge.errors import ServerRefusedError
from bridge.events import EventType, event, verify_webhook
from bridge.events.event_type import Feed
from bridge.events.source import LocalEvents
from bridge.protocol.versions import INVALID_PARAMS, NOT_FOUND
from bridge.server import EventOptions, Features, Profile
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.http.app import http_app
from tests.gateway.between import between, server_config
from tests.server.events.hooks import ADA, SECRET, Client
from tests.server.events.receiver import Receiver, receiving
from tests.server.http_server import serving
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
ORIGIN = "io.github.mcp-toolbridge/server"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(30):
        yield


@event("number")
async def number(payload: dict[str, int], least: int = 0) -> bool:
    """A number has come."""
    return payload["value"] >= least


def source(name: str) -> Server:
    options = EventOptions(poll_seconds=0.01, heartbeat_seconds=0.05)
    return Server(replace(number, feed=Feed()), name=name, events=options)


def config(server: Server, era: Any = "2026-07-28") -> ServerConfig:
    return ServerConfig(name=server.name, transport=MemoryTransport(server), protocol=era)


@asynccontextmanager
async def through(gateway: Gateway, **options: Any) -> AsyncIterator[McpToolProvider]:
    options.setdefault("events", EventOptions(poll_seconds=0.01))
    server = Server(gateway.features, name="gateway", **options)
    async with McpToolProvider([ServerConfig(name="gateway", transport=MemoryTransport(server))]) as provider:
        yield provider


@pytest.mark.parametrize("delivery", ["push", "poll"])
@pytest.mark.parametrize("server_era", ["2026-07-28", "legacy"])
async def test_events_of_servers_have_names_of_their_own_and_their_origin(server_era: str, delivery: Any) -> None:
    one, two, own = (source(name) for name in ("one", "two", "own"))
    async with between(config(one, server_era), config(two, server_era), local=own) as (gateway, connection):
        assert connection.server_info is not None
        assert "io.modelcontextprotocol/events" in connection.server_info.capabilities["extensions"]
        listed = (await connection.request("events/list"))["events"]
        assert [(each["name"], each.get("_meta", {}).get(ORIGIN)) for each in listed] == [
            ("number", None),
            ("one_number", "one"),
            ("two_number", "two"),
        ]
        assert {tuple(each["delivery"]) for each in listed} == {("poll", "push")}
        async with through(gateway) as provider:
            for server, name, origin in ((one, "one_number", "one"), (two, "two_number", "two"), (own, "number", None)):
                async with provider.events.subscribe(name, {"least": 2}, delivery=delivery) as events:
                    for each in (one, two, own):
                        each.emit("number", {"value": 1})
                    server.emit("number", {"value": 2})
                    found = await anext(events)
                    assert (found.name, found.data, found.metadata.get(ORIGIN)) == (name, {"value": 2}, origin)
                    cursor = events.cursor
                server.emit("number", {"value": 3})
                async with provider.events.subscribe(name, cursor=cursor, delivery=delivery) as events:
                    assert (await anext(events)).data == {"value": 3}  # the cursor is the server's own


async def test_refusals_of_a_server_pass() -> None:
    async with between(config(source("one"))) as (_, connection):
        for params, code in (
            ({"name": "number", "arguments": {"least": "x"}}, INVALID_PARAMS),
            ({"name": "none"}, NOT_FOUND),
        ):
            with pytest.raises(ServerRefusedError) as refused:
                await connection.request("events/poll", params)
            assert refused.value.code == code
            with pytest.raises(ServerRefusedError) as refused:
                await connection.stream("events/stream", params, receive_nothing)
            assert refused.value.code == code


async def test_the_end_of_a_type_of_a_server_passes() -> None:
    one = source("one")
    async with between(config(one), config(source("two"))) as (_, connection), anyio.create_task_group() as tasks:
        received: list[tuple[str, Any]] = []

        async def receive(message: Any) -> None:
            kind = message["method"].removeprefix("notifications/events/")
            received.append((kind, message["params"].get("error")))
            if kind == "active":
                one.serve_instead(Features(events=LocalEvents([EventType(name="other")])))

        await connection.stream("events/stream", {"name": "one_number"}, receive)
        kind, error = received[-1]
        assert (kind, error["code"], error["data"]) == ("terminated", NOT_FOUND, {"kind": "event"})
        assert {kind for kind, _ in received[:-1]} <= {"active", "heartbeat"}
        tasks.cancel_scope.cancel()


async def receive_nothing(message: object) -> None:
    raise AssertionError(f"a refused stream sent {message}")


async def test_a_gateway_to_servers_without_events_announces_none() -> None:
    async with between(server_config(ADD)) as (_, connection):
        assert connection.server_info is not None
        assert "events" not in connection.server_info.capabilities


async def test_profiles_of_a_gateway_select_events_by_server() -> None:
    async with between(config(source("one")), config(source("two"))) as (gateway, _):
        server = Server(gateway.features, name="gateway").with_profile(Profile(name="first", servers=("one",)))
        async with Connection(ServerConfig(name="gateway", transport=MemoryTransport(server))) as connection:
            listed = (await connection.request("events/list"))["events"]
            assert [each["name"] for each in listed] == ["one_number"]


async def test_a_stream_of_a_gateway_goes_on_after_its_server_was_lost() -> None:
    one = source("one")
    async with (
        between(config(one)) as (gateway, _),
        through(gateway) as provider,
        provider.events.subscribe("number", delivery="push") as events,
    ):
        one.emit("number", {"value": 1})
        assert (await anext(events)).data == {"value": 1}
        await gateway.provider.connections["one"].aclose()
        one.emit("number", {"value": 2})
        await gateway.provider.connections["one"].open()
        assert (await anext(events)).data == {"value": 2}


async def test_a_gateway_sends_events_of_its_servers_to_webhooks() -> None:
    with receiving() as receiver:
        await anyio.to_thread.run_sync(_webhooks_of_a_gateway, source("one"), receiver)


def _webhooks_of_a_gateway(one: Server, receiver: Receiver) -> None:
    """Serve a gateway in the event loop of its HTTP server."""
    from bridge.tools.lifespan import Lifespan  # noqa: PLC0415 - only here

    gateway = Gateway([config(one)])

    async def opened() -> AsyncIterator[None]:
        async with gateway:
            yield

    options = EventOptions(webhooks=True, callback_origins=(receiver.url,), retry_seconds=0.01)
    server = Server(gateway.features, name="gateway", events=options, lifespan=Lifespan.of(opened))
    with serving(http_app(server, auth=ApiKeys(ApiKey("ada", ADA)))) as url:
        client = Client(url)
        (listed,) = client.ask("events/list", {})["events"]
        assert listed["delivery"] == ["poll", "push", "webhook"]
        begun = client.subscribe(receiver.url, arguments={"least": 2})
        one.emit("number", {"value": 1})
        one.emit("number", {"value": 2})
        received = receiver.next()
        verify_webhook(SECRET, received.headers, received.body)
        assert received.headers["x-mcp-subscription-id"] == begun["id"]
        assert (received.json["data"], received.json["_meta"][ORIGIN]) == ({"value": 2}, "one")

"""Events of a server by poll and stream: filters, cursors, gaps, bounds, access, and their end."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import DefinitionError, McpToolProvider, Server, ServerConfig, tool
from bridge.client import Connection, MemoryTransport
from bridge.errors import ServerRefusedError
from bridge.events import EventType, event
from bridge.events.source import LocalEvents
from bridge.protocol.versions import INVALID_PARAMS, METHOD_NOT_FOUND, NOT_FOUND, RESOURCE_EXHAUSTED, UNSUPPORTED
from bridge.server import EventOptions, Features, Profile, namespaced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.types import Json

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
EVENTS = "io.modelcontextprotocol/events"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(30):
        yield


def numbered(name: str = "number", **attributes: Any) -> EventType:
    """Return a type of events with numbers, of which subscriptions may select those above a least one."""

    @event(name, **attributes)
    async def number(payload: dict[str, int], least: int = 0) -> bool:
        return payload["value"] >= least

    return number


@asynccontextmanager
async def connected(server: Server, era: Any = "2026-07-28") -> AsyncIterator[Connection]:
    config = ServerConfig(name="events", transport=MemoryTransport(server), protocol=era)
    async with Connection(config) as connection:
        yield connection


async def poll(connection: Connection, name: str = "number", cursor: str | None = None, **more: Any) -> Json:
    return await connection.request("events/poll", {"name": name, "cursor": cursor, **more})


def values(result: Json) -> list[int]:
    return [each["data"]["value"] for each in result["events"]]


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_types_are_listed_with_the_ways_that_a_client_has(era: str) -> None:
    server = Server(numbered(title="Number", metadata={"a": 1}, tags=["x"]), name="events")
    async with connected(server, era) as connection:
        assert connection.server_info is not None
        capabilities = connection.server_info.capabilities
        assert capabilities["events"] == {}
        assert capabilities["extensions"] == {EVENTS: {}}
        (listed,) = (await connection.request("events/list"))["events"]
    assert listed["name"] == "number"
    assert listed["title"] == "Number"
    assert listed["delivery"] == (["poll", "push"] if era == "2026-07-28" else ["poll"])
    assert listed["inputSchema"]["properties"]["least"]["default"] == 0
    assert listed["payloadSchema"]["additionalProperties"] == {"type": "integer"}
    assert listed["_meta"]["a"] == 1


async def test_a_server_without_events_has_none_of_the_methods() -> None:
    @tool
    def nothing() -> None: ...

    async with connected(Server(nothing, name="none")) as connection:
        assert connection.server_info is not None
        assert "events" not in connection.server_info.capabilities
        for method in ("events/list", "events/poll", "events/stream"):
            with pytest.raises(ServerRefusedError) as refused:
                await connection.request(method, {"name": "number"})
            assert refused.value.code == METHOD_NOT_FOUND


@BOTH
async def test_a_poll_returns_the_events_after_a_cursor_that_a_subscription_selects() -> None:
    server = Server(numbered(), name="events")
    server.emit("number", {"value": 1})  # before the subscription
    async with connected(server) as connection:
        begun = await poll(connection)
        assert begun["events"] == []
        assert begun["truncated"] is begun["hasMore"] is False
        assert begun["nextPollMs"] == 5000
        for value in range(2, 7):
            server.emit("number", {"value": value})
        found = await poll(connection, cursor=begun["cursor"], arguments={"least": 4})
        assert values(found) == [4, 5, 6]
        assert set(found["events"][0]) == {"eventId", "name", "timestamp", "data"}
        assert found["events"][0]["timestamp"].endswith("Z")
        again = await poll(connection, cursor=begun["cursor"])
        assert values(again) == [2, 3, 4, 5, 6]
        assert (await poll(connection, cursor=found["cursor"]))["events"] == []


async def test_a_poll_returns_as_many_events_as_were_asked_for_and_says_if_there_are_more() -> None:
    server = Server([numbered(), numbered("other")], name="events")
    async with connected(server) as connection:
        cursor, seen = (await poll(connection))["cursor"], list[int]()
        for value in range(450):
            server.emit("number" if value % 2 else "other", {"value": value})
        while True:
            page = await poll(connection, cursor=cursor, maxEvents=70)
            assert len(page["events"]) <= 70
            seen, cursor = seen + values(page), page["cursor"]
            if not page["hasMore"]:
                break
        assert seen == [value for value in range(450) if value % 2]
        whole = await poll(connection, cursor=(await poll(connection))["cursor"], maxEvents=10_000)
        assert (values(whole), whole["hasMore"]) == ([], False)


async def test_a_poll_reads_a_bounded_number_of_bytes() -> None:
    server = Server(EventType(name="large"), name="events")
    async with connected(server) as connection:
        cursor = (await poll(connection, "large"))["cursor"]
        for value in range(10):
            server.emit("large", {"value": value, "text": "x" * 200_000})
        first = await poll(connection, "large", cursor)
        assert (values(first), first["hasMore"]) == ([0, 1, 2, 3, 4, 5], True)
        assert values(await poll(connection, "large", first["cursor"])) == [6, 7, 8, 9]


@pytest.mark.parametrize("options", [{"max_events": 3}, {"max_bytes": 2000}])
async def test_a_cursor_whose_events_were_dropped_says_so_and_goes_on_with_those_that_are_kept(options: Any) -> None:
    server = Server(numbered(), name="events", events=EventOptions(**options))
    async with connected(server) as connection:
        cursor = (await poll(connection))["cursor"]
        for value in range(10):
            server.emit("number", {"value": value})
        found = await poll(connection, cursor=cursor)
        assert found["truncated"] is True
        assert values(found) == [7, 8, 9]
        assert (await poll(connection, cursor=found["cursor"]))["truncated"] is False


async def test_a_cursor_of_another_process_is_replaced_by_a_fresh_one() -> None:
    server = Server(numbered(), name="events")
    async with connected(server) as connection:
        for cursor in ("0123456789abcdef.7", "nonsense", "é.1", f"{'9' * 30}"):
            found = await poll(connection, cursor=cursor)
            assert (found["truncated"], found["events"]) == (True, [])
            assert (await poll(connection, cursor=found["cursor"]))["truncated"] is False
        server.emit("number", {"value": 1})
        assert values(await poll(connection, cursor="nonsense")) == [1]  # new to every other process


async def test_old_events_are_not_replayed_if_the_client_says_so() -> None:
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - only here

    server = Server(numbered(), name="events")
    async with connected(server) as connection:
        cursor = (await poll(connection))["cursor"]
        server.emit("number", {"value": 1}, timestamp=datetime.now(UTC) - timedelta(hours=1))
        server.emit("number", {"value": 2})
        recent = await poll(connection, cursor=cursor, maxAgeMs=600_000)
        assert (values(recent), recent["truncated"]) == ([2], True)
        everything = await poll(connection, cursor=cursor)
        assert (values(everything), everything["truncated"]) == ([1, 2], False)


@pytest.mark.parametrize(
    ("params", "code", "words"),
    [
        ({"name": "numbr"}, NOT_FOUND, "did you mean 'number'"),
        ({"name": 7}, INVALID_PARAMS, "'name' must be text"),
        ({}, INVALID_PARAMS, "'name' must be text"),
        ({"name": "number", "arguments": {"least": "x"}}, INVALID_PARAMS, "least: 'x' is not of type 'integer'"),
        ({"name": "number", "arguments": {"most": 1}}, INVALID_PARAMS, "'most' was unexpected"),
        ({"name": "number", "arguments": []}, INVALID_PARAMS, "'arguments' must be an object"),
        ({"name": "number", "cursor": 7}, INVALID_PARAMS, "'cursor' must be null, or text"),
        ({"name": "number", "cursor": "x" * 2000}, INVALID_PARAMS, "'cursor' must be null, or text"),
        ({"name": "number", "maxAgeMs": -1}, INVALID_PARAMS, "'maxAgeMs' must be a whole number"),
        ({"name": "number", "maxEvents": 0}, INVALID_PARAMS, "'maxEvents' must be a whole number"),
        ({"name": "pushed"}, UNSUPPORTED, "is not delivered by poll, but by push"),
    ],
)
async def test_invalid_requests_are_refused(params: Json, code: int, words: str) -> None:
    server = Server([numbered(), numbered("pushed", delivery=["push"])], name="events")
    async with connected(server) as connection:
        with pytest.raises(ServerRefusedError, match=words) as refused:
            await connection.request("events/poll", params)
        assert refused.value.code == code
        if code != UNSUPPORTED:
            with pytest.raises(ServerRefusedError, match=words) as refused:
                await connection.stream("events/stream", params, receive_nothing)
            assert refused.value.code == code


async def receive_nothing(message: Json) -> None:
    raise AssertionError(f"a refused stream sent {message}")


async def test_a_function_that_fails_gives_a_subscription_nothing(caplog: pytest.LogCaptureFixture) -> None:
    @event("fragile")
    def fragile(payload: dict[str, int]) -> bool:
        return 1 / payload["value"] > 0

    server = Server(fragile, name="events")
    async with connected(server) as connection:
        cursor = (await poll(connection, "fragile"))["cursor"]
        fragile.emit({"value": 0})
        fragile.emit({"value": 1})
        assert values(await poll(connection, "fragile", cursor)) == [1]
    assert "the function of the event 'fragile' failed" in caplog.text


class Stream:
    """A stream of events as a client sees it."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, Json]] = []
        self._is_filled = anyio.Event()

    async def receive(self, message: Json) -> None:
        params = dict(message["params"])
        assert isinstance(params.pop("_meta")["io.modelcontextprotocol/subscriptionId"], int)
        self._messages.append((message["method"].removeprefix("notifications/events/"), params))
        self._is_filled.set()

    async def next(self) -> tuple[str, Json]:
        while not self._messages:
            self._is_filled = anyio.Event()
            await self._is_filled.wait()
        return self._messages.pop(0)


@asynccontextmanager
async def streaming(connection: Connection, **params: Any) -> AsyncIterator[Stream]:
    stream = Stream()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.stream, "events/stream", {"name": "number", **params}, stream.receive)
        yield stream
        tasks.cancel_scope.cancel()


@BOTH
async def test_a_stream_confirms_then_replays_then_sends_events_as_they_occur() -> None:
    server = Server(numbered(), name="events")
    async with connected(server) as connection:
        cursor = (await poll(connection))["cursor"]
        server.emit("number", {"value": 1})
        async with streaming(connection, cursor=cursor, arguments={"least": 1}) as stream:
            assert await stream.next() == ("active", {"cursor": cursor, "truncated": False})
            kind, replayed = await stream.next()
            assert (kind, replayed["data"]) == ("event", {"value": 1})
            server.emit("number", {"value": 0})
            threading.Thread(target=server.emit, args=("number", {"value": 2})).start()
            kind, sent = await stream.next()
            assert (kind, sent["data"], sent["name"]) == ("event", {"value": 2}, "number")
        found = await poll(connection, cursor=replayed["cursor"])
        assert values(found) == [0, 2]
        assert (await poll(connection, cursor=sent["cursor"]))["events"] == []


@BOTH
async def test_a_silent_stream_sends_its_position() -> None:
    server = Server([numbered(), numbered("other")], name="events", events=EventOptions(heartbeat_seconds=0.05))
    async with connected(server) as connection, streaming(connection) as stream:
        _, active = await stream.next()
        server.emit("other", {"value": 1})
        cursor = (await poll(connection))["cursor"]
        assert cursor != active["cursor"]
        while True:
            kind, params = await stream.next()
            assert kind == "heartbeat"
            if params == {"cursor": cursor}:
                break


async def test_a_stream_says_that_events_were_skipped() -> None:
    server = Server(numbered(), name="events", events=EventOptions(max_events=2))
    async with connected(server) as connection:
        cursor = (await poll(connection))["cursor"]
        for value in range(5):
            server.emit("number", {"value": value})
        async with streaming(connection, cursor=cursor) as stream:
            kind, params = await stream.next()
            assert (kind, params["truncated"]) == ("active", True)
            assert [(await stream.next())[1]["data"]["value"] for _ in range(2)] == [3, 4]
        # The position is before the first event that is kept.
        again = await connection.request("events/poll", {"name": "number", "cursor": params["cursor"]})
        assert (again["truncated"], [each["data"]["value"] for each in again["events"]]) == (False, [3, 4])


async def test_a_stream_whose_type_is_gone_says_so_and_ends() -> None:
    server = Server(numbered(), name="events", events=EventOptions(heartbeat_seconds=0.01))
    async with connected(server) as connection, streaming(connection) as stream:
        assert (await stream.next())[0] == "active"
        server.serve_instead(Features(events=LocalEvents([EventType(name="other")])))
        while (found := await stream.next())[0] == "heartbeat":
            """The type is still there."""
        kind, params = found
        assert (kind, params["error"]["code"], params["error"]["data"]) == ("terminated", NOT_FOUND, {"kind": "event"})


async def test_streams_are_bounded_in_number_and_size_and_closed_ones_do_not_count() -> None:
    server = Server(numbered(), name="events", events=EventOptions(max_streams=1))
    async with connected(server) as connection:
        async with streaming(connection) as stream:
            await stream.next()
            with pytest.raises(ServerRefusedError, match="too many streams") as refused:
                await connection.stream("events/stream", {"name": "number"}, receive_nothing)
            assert (refused.value.code, refused.value.data) == (RESOURCE_EXHAUSTED, {"limit": "streams"})
        async with streaming(connection) as stream:
            await stream.next()
    server = Server(EventType(name="number"), name="events")
    async with connected(server) as connection:
        params = {"name": "number", "arguments": {"text": "x" * 70_000}}
        with pytest.raises(ServerRefusedError, match="a subscription may take"):
            await connection.stream("events/stream", params, receive_nothing)


async def test_a_server_that_ends_closes_its_streams_by_their_result() -> None:
    server = Server(numbered(), name="events")
    stream, ended = Stream(), anyio.Event()
    async with connected(server) as connection, anyio.create_task_group() as tasks:

        async def follow() -> None:
            await connection.stream("events/stream", {"name": "number"}, stream.receive)
            ended.set()

        tasks.start_soon(follow)
        await stream.next()
        server._dispatch.close()
        await ended.wait()


async def test_clients_of_the_handshake_era_have_no_streams() -> None:
    async with connected(Server(numbered(), name="events"), "legacy") as connection:
        with pytest.raises(ServerRefusedError) as refused:
            await connection.request("events/stream", {"name": "number"})
        assert refused.value.code == METHOD_NOT_FOUND
        assert (await poll(connection))["events"] == []


async def test_mounted_servers_and_prefixes_have_the_events_of_their_source() -> None:
    type_ = numbered()
    inner = Server(type_, name="inner")
    outer, renamed = Server(None, name="outer"), Server(namespaced(inner, "x"), name="renamed")
    outer.mount(inner, prefix="in")
    for server, name in ((inner, "number"), (outer, "in_number"), (renamed, "x_number")):
        async with connected(server) as connection:
            cursor = (await poll(connection, name))["cursor"]
            inner.emit("number", {"value": 1})
            outer.emit("in_number", {"value": 2})
            type_.emit({"value": 3})
            assert values(await poll(connection, name, cursor)) == [1, 2, 3]


async def test_profiles_select_events() -> None:
    source = Server([numbered("a"), numbered("b")], name="events")
    server = source.with_profile(Profile(name="some", include=("a",)))
    async with connected(server) as connection:
        assert [each["name"] for each in (await connection.request("events/list"))["events"]] == ["a"]
        cursor = (await poll(connection, "a"))["cursor"]
        source.emit("a", {"value": 1})
        source.emit("b", {"value": 2})
        assert values(await poll(connection, "a", cursor)) == [1]


async def test_emitting_an_unknown_event_names_the_nearest() -> None:
    with pytest.raises(DefinitionError, match="did you mean 'number'"):
        Server(numbered(), name="events").emit("numbr", {})
    with pytest.raises(DefinitionError, match="has no event 'x'; make a function its type"):
        Server(Features(), name="events").emit("x", {})


async def test_options_are_checked() -> None:
    for wrong in ({"kept_seconds": 0}, {"max_events": 0}, {"heartbeat_seconds": None}, {"max_streams": "7"}):
        with pytest.raises(DefinitionError, match=next(iter(wrong))):
            EventOptions(**wrong)
    with pytest.raises(DefinitionError, match="events is of the type EventOptions"):
        Server(numbered(), name="events", events=7)  # type: ignore[arg-type]  # as above


async def test_a_subscription_of_a_provider_is_polled_or_pushed() -> None:
    server = Server(numbered(), name="events", events=EventOptions(poll_seconds=0.01))
    async with McpToolProvider([ServerConfig(name="events", transport=MemoryTransport(server))]) as provider:
        for delivery in ("poll", "push", None):
            async with provider.events.subscribe("number", delivery=delivery) as events:
                for value in range(3):
                    server.emit("number", {"value": value})
                assert [(await anext(events)).data["value"] for _ in range(3)] == [0, 1, 2]

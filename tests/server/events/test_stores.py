"""Stores of events: the same behaviour in memory, in a file, and on Redis; and what outlives the process."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.server import EventOptions, SqliteTaskStore
from bridge.server.events.redis_store import RedisEventStore
from bridge.server.events.sqlite_store import SqliteEventStore
from bridge.server.events.store import EventRecord, EventStoreError, MemoryEventStore, record_from_json, record_to_json
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from bridge.server.events.store import EventStore

    Make = Callable[..., EventStore]

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.end()


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Make stores of one kind, of which those with the same name have the same events, after a restart as well."""
    made: list[EventStore] = []

    def make_store(name: str = "one", **options: Any) -> EventStore:
        store: EventStore
        if request.param == "memory":
            store = MemoryEventStore(EventOptions(**options))
        elif request.param == "sqlite":
            store = SqliteEventStore(SqliteTaskStore(tmp_path / name), EventOptions(**options))
        else:
            url = request.getfixturevalue("redis").url
            store = RedisEventStore(url, f"{request.node.nodeid} {name}", EventOptions(**options))
        made.append(store)
        return store

    with anyio.fail_after(30):
        yield make_store
        for store in made:
            await store.close()


def record(value: int, **more: Any) -> EventRecord:
    fields = {"id": f"e{value}", "name": "number", "timestamp": time(), "data": {"value": value}, **more}
    return EventRecord(**fields)


async def values(store: EventStore, cursor: str, limit: int = 100) -> tuple[list[int], bool, bool]:
    page = await store.read(cursor, limit)
    return [each.record.data["value"] for each in page.events], page.truncated, page.has_more


async def test_events_are_read_after_a_cursor_in_their_order(make: Make) -> None:
    store = make()
    await store.open()
    begun = await store.newest()
    assert await values(store, begun) == ([], False, False)
    records = [record(value, caller=("key", "ada") if value else None) for value in range(5)]
    await store.append(records[:2])
    await store.append(records[2:])
    page = await store.read(begun, 3)
    assert ([each.record for each in page.events], page.truncated, page.has_more) == (records[:3], False, True)
    assert await values(store, page.events[-1].cursor) == ([3, 4], False, False)
    assert await values(store, await store.newest()) == ([], False, False)


@pytest.mark.parametrize(("options", "kept"), [({"max_events": 3}, 3), ({"kept_seconds": 100}, 3)])
async def test_the_oldest_events_are_dropped_and_a_cursor_before_them_is_truncated(
    make: Make, options: Any, kept: int
) -> None:
    store = make(**options)
    await store.open()
    begun = await store.newest()
    old = {"timestamp": time() - 1000} if "kept_seconds" in options else {}
    await store.append([record(0, **old), record(1, **old)])
    before = (await store.newest(), await values(store, begun))
    await store.append([record(value) for value in range(2, 5)])
    assert before[1] in (([0, 1], False, False), ([], True, False))
    assert await values(store, begun) == ([*range(5 - kept, 5)], True, False)
    assert await values(store, before[0]) == ([2, 3, 4], False, False)  # nothing after it was dropped


async def test_the_oldest_events_over_the_maximum_of_bytes_are_dropped(make: Make) -> None:
    store = make(max_bytes=4000)
    await store.open()
    begun = await store.newest()
    for start in (0, 7, 10):
        numbers = range(start, start + 10)
        await store.append([record(value, data={"value": value, "text": "x" * 500}) for value in numbers])
        assert await values(store, begun) == ([*numbers[-3:]], True, False)
    await store.append([record(7, data={"value": 7, "text": "x" * 4000})])  # which is more than all may have
    assert await values(store, begun) == ([], True, False)
    await store.append([record(8)])
    assert await values(store, begun) == ([8], True, False)


async def test_the_revision_changes_with_subscriptions_and_one_that_was_replaced_is_not_deleted(make: Make) -> None:
    store = make("revised")
    await store.open()
    seen = [await store.revision()]
    for action in (
        store.save_subscription("a", b"1"),
        store.save_subscription("a", b"2"),
        store.delete_subscription("a", b"2"),
    ):
        await action
        assert await store.revision() not in seen
        seen.append(await store.revision())
    await store.save_subscription("a", b"3")
    revision = await store.revision()
    await store.save_subscription("a/state", b"s")
    assert await store.revision() == revision
    assert not await store.delete_subscription("a", b"2")
    assert (await store.subscription("a"), await store.subscription("a/state")) == (b"3", b"s")
    assert await store.subscriptions() == {"a": b"3", "a/state": b"s"}
    assert await store.delete_subscription("a", b"3")
    assert not await store.delete_subscription("a")
    await store.save_subscription("a/state", b"of a replica that has not read that it was deleted")
    assert await store.subscriptions() == {}


async def test_a_cursor_of_another_store_or_none_at_all_gets_what_is_kept(make: Make) -> None:
    store, other = make(), make("other")
    await store.open()
    await other.open()
    await store.append([record(1)])
    for cursor in (await other.newest(), "", ".", "x.y", "0.", "0000.7", f"x.{'9' * 40}", "é.٣"):
        assert await values(store, cursor) == ([1], True, False)


async def test_cursors_and_subscriptions_survive_a_restart(make: Make) -> None:
    store = make()
    if isinstance(store, MemoryEventStore):
        pytest.skip("it ends with its process")
    await store.open()
    begun = await store.newest()
    await store.append([record(1)])
    await store.save_subscription("a", b'{"a":1}')
    await store.save_subscription("b", b"{}")
    await store.save_subscription("b", b'{"b":2}')
    await store.delete_subscription("a")
    await store.delete_subscription("none")
    await store.close()
    again = make()
    await again.open()
    await again.append([record(2)])
    assert await values(again, begun) == ([1, 2], False, False)
    assert await again.subscriptions() == {"b": b'{"b":2}'}


async def test_numbers_are_not_used_again_after_events_were_dropped(make: Make) -> None:
    store = make(kept_seconds=100)
    await store.open()
    await store.append([record(1, timestamp=time() - 1000)])
    cursor = await store.newest()
    await store.append([record(2)])
    assert await values(store, cursor) == ([2], False, False)


async def test_one_process_leads(make: Make) -> None:
    store = make()
    await store.open()
    assert await store.leads("one", 60)
    assert await store.leads("one", 60)
    assert await store.leads("two", 60) is not isinstance(store, RedisEventStore)


async def test_a_replica_waits_for_events_of_another(redis: RedisServer) -> None:
    one, two = (RedisEventStore(redis.url, "waiting", EventOptions()) for _ in range(2))
    with anyio.fail_after(30):
        cursor = await one.newest()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.append, [record(7)])
            while await two.newest() == cursor:
                await two.wait(cursor)
        assert await values(two, cursor) == ([7], False, False)
        await one.close()
        await two.close()


async def test_a_flushed_redis_is_another_store(redis: RedisServer) -> None:
    store = RedisEventStore(redis.url, "flushed", EventOptions())
    await store.append([record(1), record(2)])
    cursor = await store.newest()
    client: Any = store._redis
    await client.delete(*store._keys)
    await store.append([record(value) for value in range(3, 7)])
    assert await values(store, cursor) == ([3, 4, 5, 6], True, False)
    await store.close()


async def test_a_store_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    store = RedisEventStore("redis://127.0.0.1:1/0", "nobody", EventOptions())
    with pytest.raises(EventStoreError, match="cannot be used"):
        await store.append([record(1)])
    (tmp_path / "text").write_text("this is no database, and longer than a header of one" * 10)
    with pytest.raises(EventStoreError, match="cannot be used"):
        await SqliteEventStore(SqliteTaskStore(tmp_path / "text"), EventOptions()).open()


async def test_a_file_is_open_while_tasks_or_events_use_it(tmp_path: Path) -> None:
    tasks = SqliteTaskStore(tmp_path / "file")
    store = SqliteEventStore(tasks, EventOptions())
    await tasks.open()
    await store.open()
    await store.append([record(1)])
    await tasks.close()
    assert await store.newest()
    await store.close()
    with pytest.raises(EventStoreError, match="is not open"):
        await store.newest()


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"caller":[]}', '{"caller":null,"id":1,"more":2}', "not json"])
def test_a_malformed_record_is_recognised(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        record_from_json(text)


def test_a_record_is_read_as_it_was_written() -> None:
    for each in (record(1), record(2, caller=("key", "ada"), data={"text": "é\u2028", "deep": [{"a": None}]})):
        assert record_from_json(record_to_json(each)) == each

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from bridge.errors import DefinitionError, MemoryStoreError, MissingExtraError, WireError
from bridge.service.memory import persistent_stores
from bridge.service.memory.chat_memory import ChatMemory, ProvidedMemories, message_window, token_window
from bridge.service.memory.persistent_stores import RedisStore, SqliteStore
from bridge.service.memory.store import ChatMemoryStore, InMemoryStore, StoredMessages, memory_key
from bridge.service.messages import (
    AiMessage,
    ChatMessage,
    SystemMessage,
    ToolExecutionResultMessage,
    UserMessage,
)
from bridge.tools.content import Image, Text
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

EVERY_KIND: list[ChatMessage] = [
    UserMessage.of("What is this? ☔ \ud83d", Image(b"\x89PNG"), name="Ada"),
    AiMessage(
        "Let me look.",
        (ToolExecutionRequest("look", '{"at": "it"}', "1"), ToolExecutionRequest("look", {"at": 2})),
        "hm",
        {"anthropic": {"signature": "abc"}},
    ),
    ToolExecutionResultMessage("1", "look", (Text("a cat"),), attributes={"row": 7, "tags": ["pet"]}),
    ToolExecutionResultMessage(None, "look", (Text("no"),), is_error=True),
    AiMessage("A cat."),
]


@pytest.fixture(params=["in memory", "sqlite", "redis"])
def open_store(request: pytest.FixtureRequest) -> Iterator[Callable[[], ChatMemoryStore]]:
    """Opens the same store repeatedly, as other processes would."""
    opened: list[Any] = []
    if request.param == "in memory":
        store = InMemoryStore()
        yield lambda: store
        return
    prefix = request.node.name

    def open_again() -> ChatMemoryStore:
        if request.param == "sqlite":
            opened.append(SqliteStore(request.getfixturevalue("database")))
        else:
            opened.append(RedisStore(request.getfixturevalue("redis_url"), prefix=prefix))
        return opened[-1]  # type: ignore[no-any-return]  # one of the two

    yield open_again
    for each in opened:
        each.close()


def said(count: int, start: int = 0) -> list[ChatMessage]:
    return [UserMessage.of(str(i)) for i in range(start, start + count)]


async def test_a_conversation_comes_back_as_it_was(open_store: Callable[[], ChatMemoryStore]) -> None:
    await open_store().append("c", EVERY_KIND)
    page = await open_store().read("c", limit=10)
    assert page == StoredMessages(messages=EVERY_KIND)


async def test_the_newest_are_read_in_pages_that_go_back(open_store: Callable[[], ChatMemoryStore]) -> None:
    store = open_store()
    await store.append("c", said(3))
    await store.append("c", said(4, start=3))
    newest = await store.read("c", limit=3)
    assert newest.messages == said(3, start=4)
    await store.append("c", said(2, start=7))  # later messages move nothing
    older = await store.read("c", limit=3, before=newest.before)
    assert older.messages == said(3, start=1)
    oldest = await store.read("c", limit=3, before=older.before)
    assert oldest == StoredMessages(messages=said(1))


async def test_conversations_are_apart(open_store: Callable[[], ChatMemoryStore]) -> None:
    store = open_store()
    await store.append("1", said(1))
    await store.append(1, said(2))
    assert (await store.read("1", limit=9)).messages == said(1)
    assert (await store.read(1, limit=9)).messages == said(2)
    assert await store.read("nobody", limit=9) == StoredMessages(messages=[])
    await store.delete("1")
    assert await store.read("1", limit=9) == StoredMessages(messages=[])
    assert (await store.read(1, limit=9)).messages == said(2)


async def test_the_newest_system_message_is_kept_beside_the_others(open_store: Callable[[], ChatMemoryStore]) -> None:
    store = open_store()
    await store.append("c", [SystemMessage("old"), *said(1)])
    await store.append("c", [SystemMessage("new"), *said(3, start=1)])
    assert await store.read("c", limit=9) == StoredMessages(messages=said(4), system=SystemMessage("new"))
    memory = ChatMemory(store, memory_id="c", window=message_window(3))
    assert await memory.messages() == (SystemMessage("new"), *said(2, start=2))


async def test_a_memory_shows_what_its_window_admits(open_store: Callable[[], ChatMemoryStore]) -> None:
    memory = ChatMemory(open_store(), window=message_window(2)).of("ada")
    await memory.add(*said(5))
    assert await memory.messages() == tuple(said(2, start=3))
    everything = ChatMemory(open_store(), window=message_window(9), memory_id="ada")
    assert await everything.messages() == tuple(said(5))
    await memory.clear()
    assert await memory.messages() == ()


async def test_a_window_of_tokens_reads_as_many_pages_as_it_needs(open_store: Callable[[], ChatMemoryStore]) -> None:
    memory = ChatMemory(open_store(), window=token_window(300, lambda _: 5))
    await memory.add(*said(100))
    assert await memory.messages() == tuple(said(60, start=40))


@pytest.mark.parametrize("length", [10, 1_000])
async def test_what_a_turn_reads_and_writes_does_not_grow_with_the_conversation(length: int) -> None:
    class Counting(InMemoryStore):
        touched = 0

        async def read(self, *arguments: Any, **keywords: Any) -> StoredMessages:
            page = await super().read(*arguments, **keywords)
            self.touched += len(page.messages)
            return page

        async def append(self, memory_id: Any, messages: Any) -> None:
            self.touched += len(messages)
            await super().append(memory_id, messages)

    store = Counting()
    memory = ChatMemory(store, window=message_window(10))
    await memory.add(*said(length))
    store.touched = 0
    await memory.messages()
    await memory.add(*said(2))
    assert store.touched == 12


async def test_concurrent_turns_are_each_whole(open_store: Callable[[], ChatMemoryStore]) -> None:
    store = open_store()
    async with anyio.create_task_group() as group:
        for i in range(8):
            turn: list[ChatMessage] = [UserMessage.of(str(i)), AiMessage(str(i))]
            group.start_soon(store.append, "c", turn)
    messages = (await store.read("c", limit=99)).messages
    said = [message.text for message in messages if isinstance(message, UserMessage | AiMessage)]
    assert said[::2] == said[1::2]
    assert sorted(filter(None, said[::2])) == list(map(str, range(8)))


@pytest.mark.parametrize(
    ("memory_id", "key"),
    [("a", '"a"'), (1, "1"), (["a", 1], '["a", 1]'), (UUID(int=1), f'["UUID", "{UUID(int=1)}"]'), (None, "null")],
)
def test_a_memory_id_is_known_by_its_json(memory_id: Any, key: str) -> None:
    assert memory_key(memory_id) == key


def test_a_memory_id_that_identifies_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be written as JSON; use text or a number"):
        memory_key(object())


@given(st.lists(st.text() | st.integers(), min_size=2, max_size=2, unique_by=lambda value: (type(value), value)))
def test_different_ids_have_different_keys(pair: list[Any]) -> None:
    assert memory_key(pair[0]) != memory_key(pair[1])


async def test_a_path_is_a_store_in_sqlite(database: Path) -> None:
    memory = ChatMemory(database)
    await memory.add(*said(2))
    assert isinstance(memory.store, SqliteStore)
    memory.store.close()
    assert await memory.messages() == tuple(said(2))  # it opens again
    memory.store.close()


async def test_a_url_is_a_store_in_redis(redis_url: str) -> None:
    memory = ChatMemory(redis_url, memory_id="opened by its URL")
    await memory.add(*said(2))
    assert isinstance(memory.store, RedisStore)
    other = ChatMemory(redis_url).of("opened by its URL")
    assert await other.messages() == tuple(said(2))
    await other.clear()
    assert isinstance(other.store, RedisStore)
    for each in (memory.store, other.store):
        each.close()


@pytest.mark.parametrize("url", ["rediss://localhost", "unix:///run/redis.sock"])
async def test_a_url_of_any_kind_of_redis_is_a_store_in_redis(url: str) -> None:
    assert isinstance(ChatMemory(url).store, RedisStore)


async def test_a_redis_that_does_not_answer_is_said_without_its_password() -> None:
    memory = ChatMemory("redis://:secret@127.0.0.1:1/0")
    with pytest.raises(MemoryStoreError, match=r"Redis at 127\.0\.0\.1:1 cannot be used") as told:
        await memory.messages()
    assert "secret" not in str(told.value)
    with pytest.raises(MemoryStoreError):
        await memory.add(*said(1))


async def test_of_a_conversation_forgotten_while_it_is_read_the_next_is_not_read_as_its_beginning(
    redis_url: str,
) -> None:
    store = RedisStore(redis_url, prefix="forgotten")
    await store.append("c", said(9))
    newest = await store.read("c", limit=4)
    await store.delete("c")
    await store.append("c", said(2, start=20))
    assert await store.read("c", limit=4, before=newest.before) == StoredMessages(messages=[])
    await store.delete("c")
    store.close()


async def test_what_redis_refuses_is_an_error_of_ours(redis_url: str) -> None:
    store = RedisStore(redis_url, prefix="refused")
    with closing(Redis.from_url(redis_url)) as redis:
        redis.set('refused:{"c"}:messages', "no list")
        for use in (store.append("c", said(1)), store.read("c", limit=1)):
            with pytest.raises(MemoryStoreError, match=r"cannot be used: .*WRONGTYPE"):
                await use
        redis.delete('refused:{"c"}:messages')
    store.close()


async def test_a_file_that_another_program_keeps_locked_is_said(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent_stores, "_BUSY_SECONDS", 0.01)
    memory, late = ChatMemory(database), ChatMemory(database)
    await memory.messages()
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for use in (memory.add(*said(1)), memory.clear()):
            with pytest.raises(
                MemoryStoreError, match=r"conversations\.db' cannot be used: another program has kept it"
            ):
                await use
        other.execute("ROLLBACK")
    await late.add(*said(1))
    assert await memory.messages() == tuple(said(1))


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no database, by far" * 100, "file is not a database"), (None, "unable to open")]
)
async def test_a_file_that_is_no_database_is_said(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "notes.db"
    path.mkdir() if content is None else path.write_bytes(content)
    memory = ChatMemory(path)
    for use in (memory.messages(), memory.add(*said(1)), memory.clear()):
        with pytest.raises(MemoryStoreError, match=rf"notes\.db' cannot be used: {reason}"):
            await use


async def test_a_full_disk_is_said_and_nothing_is_half_written(database: Path) -> None:
    memory = ChatMemory(database)
    await memory.add(*said(1))
    store = memory.store
    assert isinstance(store, SqliteStore)
    store._connection().execute("PRAGMA max_page_count = 8")  # the error of SQLite on a full disk
    with pytest.raises(MemoryStoreError, match="cannot be used: database or disk is full"):
        await memory.add(*said(2), UserMessage.of("x" * 100_000))
    assert await memory.messages() == tuple(said(1))


async def test_a_failure_that_does_not_pass_is_said_without_waiting(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await anyio.Path(database).write_text("not a database, and longer than the header of one: " * 10)
    monkeypatch.setattr(persistent_stores, "sleep", lambda _: pytest.fail("it waited"))
    with pytest.raises(MemoryStoreError, match="cannot be used: file is not a database"):
        await ChatMemory(database).messages()


def test_a_store_that_is_no_longer_used_closes_its_file(database: Path) -> None:
    store = SqliteStore(database)
    connection = store._connection()
    del store
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


async def test_a_file_of_a_newer_version_is_refused(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(WireError, match="newer version, 99"):
        await ChatMemory(database).messages()


async def test_a_turn_that_cannot_be_written_writes_nothing(open_store: Callable[[], ChatMemoryStore]) -> None:
    store = open_store()
    if isinstance(store, InMemoryStore):
        pytest.skip("it writes nothing down")
    with pytest.raises((TypeError, ValueError)):
        await store.append("c", [*said(1), AiMessage("x", attributes={"provider": object()})])
    assert await store.read("c", limit=9) == StoredMessages(messages=[])


def test_of_provided_memories_the_one_not_used_for_longest_is_dropped() -> None:
    memories = ProvidedMemories(lambda _: ChatMemory(), max_memories=2)
    one, two = memories.of(1), memories.of("1")
    assert memories.of(1) is one
    memories.of(3)
    assert memories.of(1) is one
    assert memories.of("1") is not two


def test_redis_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtraError, match=r"mcp-toolbridge\[redis\]"):
        RedisStore("redis://localhost")


@pytest.mark.parametrize("seconds", [0, -1, 1.5, True])
def test_a_time_that_redis_would_refuse_is_refused(seconds: Any) -> None:
    with pytest.raises(DefinitionError, match="expire_seconds must be a whole number of at least 1, or None, not"):
        RedisStore("redis://localhost", expire_seconds=seconds)

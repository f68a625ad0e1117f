"""Stores of large results: bounds of time and bytes, callers and sessions, on SQLite and on Redis."""

from __future__ import annotations

import os
import stat
from itertools import count
from typing import TYPE_CHECKING

import pytest

from bridge.tools import RedisResultStore, SqliteResultStore
from bridge.tools.spill.store import Bounds, KeptResult, ResultStoreError
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from bridge.tools.spill.store import ResultStore
    from tests.redis_server import RedisServer

_NUMBERS = count()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["temporary", "file", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ResultStore]:
    store: ResultStore
    if request.param == "redis":
        store = RedisResultStore(request.getfixturevalue("redis").url, f"server-{next(_NUMBERS)}")
    else:
        store = SqliteResultStore(None if request.param == "temporary" else tmp_path / "results.db")
    yield store
    await store.aclose()


def kept(content: str = "text", owner: str = "ada", session: str = "") -> KeptResult:
    return KeptResult(owner=owner, session=session, tool="big", content=content)


async def present(store: ResultStore, *ids: str) -> list[str]:
    return [each for each in ids if await store.find(each) is not None]


async def test_a_result_is_found_as_it_was_kept(store: ResultStore) -> None:
    result = KeptResult(owner="ada", session="s", tool="big", content='["ä€😀", "\\u0000"]')
    await store.add("1", result, Bounds())
    assert await store.find("1") == result
    assert await store.find("2") is None


async def test_an_expired_result_is_not_found(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.add("long", kept(), Bounds(ttl_seconds=1000))
    await store.add("short", kept(), Bounds(ttl_seconds=0.001))
    found: KeptResult | None = kept()
    while found is not None:
        found = await store.find("short")
    assert await present(store, "long", "short") == ["long"]


async def test_the_oldest_of_a_caller_are_deleted_over_its_bytes_and_no_other_caller_loses_any(
    store: ResultStore,
) -> None:
    bounds = Bounds(max_caller_bytes=10)
    for number in range(3):
        await store.add(f"bob{number}", kept("12", "bob"), bounds)
    for number in range(4):
        await store.add(f"ada{number}", kept("1234"), bounds)
    assert await present(store, *(f"ada{number}" for number in range(4))) == ["ada2", "ada3"]
    assert len(await present(store, "bob0", "bob1", "bob2")) == 3


async def test_the_oldest_of_all_are_deleted_over_the_bytes_of_all(store: ResultStore) -> None:
    for number in range(4):
        await store.add(str(number), kept("1234", f"caller {number}"), Bounds(max_bytes=10))
    assert await present(store, "0", "1", "2", "3") == ["2", "3"]


async def test_bytes_of_deleted_results_are_free_again(store: ResultStore) -> None:
    bounds = Bounds(max_bytes=10)
    for owner in ("ada", "bob", "cid", "dan"):
        await store.add(f"1{owner}", kept("12345", owner), bounds)
        await store.add(f"2{owner}", kept("12345", owner), bounds)
        assert len(await present(store, f"1{owner}", f"2{owner}")) == 2
        await store.forget(owner=owner)
        assert not await present(store, f"1{owner}", f"2{owner}")


async def test_a_session_or_a_caller_is_forgotten(store: ResultStore) -> None:
    await store.add("1", kept(session="one"), Bounds())
    await store.add("2", kept(session="two"), Bounds())
    await store.add("3", kept(owner="bob", session="two"), Bounds())
    await store.forget(session="one")
    assert await present(store, "1", "2", "3") == ["2", "3"]
    await store.forget(owner="bob")
    assert await present(store, "1", "2", "3") == ["2"]


async def test_a_file_is_shared_by_processes_and_private_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    one, two = SqliteResultStore(path), SqliteResultStore(path)
    await one.add("1", kept(), Bounds())
    assert await two.find("1") == kept()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for each in (one, two):
        await each.aclose()
    again = SqliteResultStore(path)
    assert await again.find("1") == kept()
    await again.aclose()


async def test_a_temporary_store_has_no_name_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    store = SqliteResultStore()
    await store.add("1", kept("x" * 8_000_000), Bounds())  # more than SQLite caches
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - without waiting
    await store.aclose()
    assert await store.find("1") is None
    await store.aclose()


async def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("notes" * 1000)
    with pytest.raises(ResultStoreError, match=r"large results cannot be kept in '.*notes\.txt'"):
        await SqliteResultStore(path).add("1", kept(), Bounds())
    assert path.read_text() == "notes" * 1000


async def test_a_redis_that_is_down_is_an_error_without_credentials(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        url = server.url.replace("redis://", "redis://:secret@")
    store = RedisResultStore(url, "server")
    with pytest.raises(ResultStoreError, match=r"Redis at 127\.0\.0\.1") as caught:
        await store.find("1")
    assert "secret" not in str(caught.value)
    await store.aclose()

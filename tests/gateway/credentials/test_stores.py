"""Stores of credentials: what is kept, by whom it is found, and what is readable."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import sys
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from bridge.client.auth.login import Login
from bridge.gateway.credentials.errors import CredentialStoreError
from bridge.gateway.credentials.keeper import CredentialKeeper
from bridge.gateway.credentials.redis_store import RedisCredentialStore
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey
from tests import forks
from tests.gateway.credentials.writer import SUBJECTS, key_of, store_in
from tests.processes import DEADLINE_SECONDS, ROOT
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bridge.gateway.credentials.store import CredentialStore

pytestmark = pytest.mark.anyio

FIRST, SECOND = b"1" * 32, b"2" * 32
ADA, BOB = CredentialKey("https://id", "ada", "notes"), CredentialKey("https://id", "bob", "notes")
HUSH = Credential(kind="secret", secret="hush")


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CredentialStore]:
    """Make a store with encryption keys; all of one test share what they keep."""

    def made(*keys: bytes) -> CredentialStore:
        seal = CredentialSeal(keys or [FIRST])
        if request.param == "sqlite":
            return SqliteCredentialStore(tmp_path / "credentials.db", seal)
        return RedisCredentialStore(request.getfixturevalue("redis_url"), seal, tmp_path.name)

    return made


async def test_credentials_are_kept_by_caller_and_server(make: Callable[..., CredentialStore]) -> None:
    store, other = make(), make()
    await store.open()
    await other.open()
    await store.put(ADA, HUSH)
    await store.put(CredentialKey("", "", "notes"), HUSH)  # the gateway's own is not listed
    assert await other.get(ADA) == HUSH
    assert await other.get(BOB) is None
    assert [(record.key, record.kind) for record in await other.list()] == [(ADA, "secret")]
    assert [record.key for record in await other.list(subject="bob")] == []
    assert not await store.update(BOB, HUSH)
    assert await store.update(ADA, HUSH.model_copy(update={"secret": "again"}))
    found = await other.get(ADA)
    assert found is not None
    assert found.value == "again"
    assert await other.delete(ADA)
    assert not await store.delete(ADA)
    await store.close()
    await other.close()
    with pytest.raises(CredentialStoreError, match="not open"):
        await store.get(ADA)


async def test_keys_are_rotated(make: Callable[..., CredentialStore]) -> None:
    for keys, is_readable in (([FIRST], True), ([SECOND, FIRST], True), ([SECOND], True), ([FIRST], False)):
        store = make(*keys)
        await store.open()
        if keys == [FIRST] and is_readable:
            await store.put(ADA, HUSH)
        assert (await store.get(ADA) == HUSH) is is_readable
        await store.close()


async def test_a_credential_moved_to_another_caller_is_unreadable(tmp_path: Path) -> None:
    store = SqliteCredentialStore(tmp_path / "credentials.db", CredentialSeal([FIRST]))
    await store.open()
    await store.put(ADA, HUSH)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "credentials.db")) as connection, connection:
        connection.execute("UPDATE credential SET subject = 'bob'")
    await store.open()
    assert await store.get(BOB) is None
    await store.close()


async def test_values_are_taken_once_and_end(make: Callable[..., CredentialStore]) -> None:
    store = make()
    await store.open()
    await store.put_once("name", {"a": 1}, 60)
    await store.put_once("ended", {"a": 1}, 0.001)
    assert await store.find_once("name") == {"a": 1}
    taken = []

    async def take() -> None:
        taken.append(await store.take_once("name"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(take)
    assert sorted(taken, key=str) == [None, None, None, None, {"a": 1}]
    with anyio.fail_after(10):
        while await store.find_once("ended") is not None:
            await anyio.lowlevel.checkpoint()
    await store.close()


async def test_one_renews_at_a_time_and_a_dead_one_ends(make: Callable[..., CredentialStore]) -> None:
    store, other = make(), make()
    await store.open()
    await other.open()
    assert await store.acquire(ADA, "one", 60)
    assert not await other.acquire(ADA, "two", 60)
    assert await other.acquire(BOB, "two", 60)
    await other.release(ADA, "two")
    assert not await other.acquire(ADA, "two", 60)
    await store.release(ADA, "one")
    assert await other.acquire(ADA, "two", 0.001)
    with anyio.fail_after(10):
        while not await store.acquire(ADA, "one", 60):
            await anyio.lowlevel.checkpoint()
    await store.close()
    await other.close()


async def test_a_renewal_does_not_bring_back_what_was_deleted(make: Callable[..., CredentialStore]) -> None:
    store = make()
    await store.open()
    keeper = CredentialKeeper(store)
    await keeper.renewed(ADA, Login(server_url="https://notes"))
    assert await store.get(ADA) is None
    await keeper.save(ADA, HUSH)
    await keeper.drop(ADA, "another")
    assert await store.get(ADA) == HUSH
    await keeper.drop(ADA, "hush")
    assert await store.get(ADA) is None
    await store.close()


async def test_a_waiting_call_learns_of_a_credential_that_another_process_has_kept(
    make: Callable[..., CredentialStore],
) -> None:
    store, other = make(), make()
    await store.open()
    await other.open()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(CredentialKeeper(store).arrived, ADA)
            await CredentialKeeper(other).save(ADA, HUSH)
    await store.close()
    await other.close()


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of the files in a folder."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the process is killed by SIGKILL")
async def test_credentials_survive_a_kill_of_the_process_that_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "credentials.db"
    for _ in range(3):  # each process goes on with the file and the write-ahead log that the last one left
        arguments = ["-m", "tests.gateway.credentials.writer", str(file)]
        with forks.popen(arguments, cwd=ROOT, env=os.environ) as process:
            assert process.stdout is not None
            kept = [int(line) for line in islice(process.stdout, 2 * SUBJECTS)]
            process.send_signal(signal.SIGKILL)
            kept += [int(line) for line in process.stdout]
            assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        assert modes(tmp_path) == dict.fromkeys(("credentials.db", "credentials.db-shm", "credentials.db-wal"), 0o600)
        store = store_in(file)
        await store.open()
        for number in kept[-SUBJECTS:]:
            found = await store.get(key_of(number))
            assert found is not None
            assert found.value is not None
            # The process may have replaced the oldest one before it was killed, without printing that.
            assert int(found.value.removeprefix("secret-")) in {number, number + SUBJECTS}
            assert await store.find_once(f"link-{number}") == {"number": number}
        assert len(await store.list()) == SUBJECTS
        await store.close()
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert modes(tmp_path) == {"credentials.db": 0o600}

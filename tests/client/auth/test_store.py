from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from mcp.shared.auth import OAuthToken

from bridge.client.auth.login import Login
from bridge.client.auth.store import LoginStore, login_key
from bridge.errors import WireError
from bridge.private_files import state_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.anyio
DEADLINE_SECONDS = 30
KEY = login_key("https://mcp.example.com/mcp")
LOGIN = Login(
    server_url="https://mcp.example.com/mcp",
    tokens=OAuthToken(access_token="access-token-of-mine", refresh_token="refresh-token-of-mine", expires_in=60),
    expires_at=10.0,
)
HOLDER = """
import sys
from pathlib import Path
import anyio
from bridge.client.auth.store import LoginStore

async def hold():
    async with LoginStore(Path(sys.argv[1])).locked(sys.argv[2]):
        print("held", flush=True)
        sys.stdin.readline()

anyio.run(hold)
"""


@pytest.fixture
def store(tmp_path: Path) -> LoginStore:
    return LoginStore(tmp_path / "logins")


async def test_what_is_kept_is_read_again(store: LoginStore) -> None:
    assert await store.load(KEY) is None
    await store.save(KEY, LOGIN)
    assert await store.load(KEY) == LOGIN


async def test_nobody_else_may_read_a_login(store: LoginStore) -> None:
    await store.save(KEY, LOGIN)
    assert store.path(KEY).stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700


async def test_a_login_that_others_could_read_is_closed_to_them(
    store: LoginStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.save(KEY, LOGIN)
    store.path(KEY).chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert await store.load(KEY) == LOGIN
    assert store.path(KEY).stat().st_mode & 0o777 == 0o600
    assert "readable by other users" in caplog.text


async def test_nothing_is_left_beside_a_login(store: LoginStore) -> None:
    for _ in range(2):
        await store.save(KEY, LOGIN)
    assert [path.name for path in store.folder.iterdir()] == [f"{KEY}.json"]


async def test_a_login_is_on_the_disk_before_it_takes_the_place_of_another_and_then_so_is_its_name(
    store: LoginStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    replace = Path.replace

    def put(self: Path, target: Path) -> Path:
        done.append("put in place")
        return replace(self, target)

    def write_through(descriptor: int) -> None:
        found = os.fstat(descriptor)
        assert found.st_size
        done.append("folder" if stat.S_ISDIR(found.st_mode) else "file")

    monkeypatch.setattr(Path, "replace", put)
    monkeypatch.setattr(os, "fsync", write_through)
    await store.save(KEY, LOGIN)
    assert done == ["file", "put in place", "folder"]


async def test_a_login_that_cannot_be_written_leaves_the_one_before(
    store: LoginStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.save(KEY, LOGIN)

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        await store.save(KEY, LOGIN.renewed(None))
    assert await store.load(KEY) == LOGIN
    assert [path.name for path in store.folder.iterdir()] == [f"{KEY}.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2, "server_url": "x"}', '{"tokens": 1}', "\0"])
async def test_what_is_no_login_is_an_error_that_names_the_file_and_quotes_nothing(
    store: LoginStore, content: str
) -> None:
    store.folder.mkdir()
    store.path(KEY).write_text(content, encoding="utf-8")
    store.path(KEY).chmod(0o600)
    with pytest.raises(WireError, match=r"is not a valid login: .*; remove it, or log in again") as caught:
        await store.load(KEY)
    assert str(store.path(KEY)) in str(caught.value)


async def test_what_is_no_login_is_put_aside_by_the_next_one(store: LoginStore) -> None:
    store.folder.mkdir()
    store.path(KEY).write_text("precious", encoding="utf-8")
    store.path(KEY).chmod(0o600)
    await store.save(KEY, LOGIN)
    assert await store.load(KEY) == LOGIN
    assert store.path(KEY).with_suffix(".bad").read_text(encoding="utf-8") == "precious"


async def test_a_login_is_forgotten_once(store: LoginStore) -> None:
    await store.save(KEY, LOGIN)
    assert [await store.delete(KEY), await store.delete(KEY)] == [True, False]


async def test_one_process_at_a_time_holds_a_login(store: LoginStore) -> None:
    holder = subprocess.Popen(  # noqa: ASYNC220 - short
        [sys.executable, "-c", HOLDER, str(store.folder), KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    got = anyio.Event()

    async def hold() -> None:
        async with store.locked(KEY):
            got.set()

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            async with store.locked(login_key("https://other.example")):
                assert not got.is_set(), "the lock of another login is another"
            holder.stdin.write("go on\n")
            holder.stdin.close()
            await got.wait()
    assert holder.wait(DEADLINE_SECONDS) == 0
    holder.stdout.close()


def test_no_repr_shows_a_token() -> None:
    assert "of-mine" not in repr(LOGIN)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (("https://H/mcp",), ("https://h/mcp/",), True),
        (("https://h/mcp#part",), ("https://h/mcp",), True),
        (("https://h/mcp",), ("https://h/mcp", "client"), False),
        (("https://h/mcp",), ("https://h/other",), False),
        (("https://h/mcp?team=a",), ("https://h/mcp?team=b",), False),
    ],
)
def test_a_login_is_one_servers_and_one_clients(one: tuple[str, ...], other: tuple[str, ...], is_same: bool) -> None:
    assert (login_key(*one) == login_key(*other)) is is_same


def test_a_key_shows_people_the_host_and_nothing_else_of_the_url() -> None:
    key = login_key("https://me:hidden@mcp.example.com/hidden?key=hidden")
    assert key.startswith("mcp.example.com-")
    assert "hidden" not in key


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"BRIDGE_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/bridge"),
        ({"HOME": "/c"}, "/c/.local/state/bridge"),
    ],
)
def test_the_environment_says_where_logins_are_kept(
    monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], folder: str
) -> None:
    for name in ("BRIDGE_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert state_folder() == Path(folder)

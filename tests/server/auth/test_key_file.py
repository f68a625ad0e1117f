from __future__ import annotations

import logging
import os
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.server.auth import KeyFile
from bridge.server.auth.keys import ApiKey, KeyFileError, read_keys

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

ADA = "ada-ada-ada-ada-ada-ada"
BOB = "bob-bob-bob-bob-bob-bob"
DEADLINE_SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    made.touch(mode=0o600)
    return made


def following(path: Path) -> KeyFile:
    """A file with Ada's key, which is read again continuously."""
    path.write_text(f"ada {ADA}\n")
    return KeyFile(path, check_seconds=0.01)


def replace(path: Path, text: str | None) -> None:
    """Replace a file by another, or delete it."""
    if text is None:
        path.unlink()
        return
    newer = path.with_name("newer")
    newer.write_text(text)
    newer.replace(path)


def test_each_line_is_a_key(path: Path) -> None:
    digest = "sha256:" + sha256(BOB.encode()).hexdigest()
    path.write_text(
        f"\ufeff# who\tkey\n\n  ada\t{ADA}\r\nbob {digest} scopes=x,y tools=search_*,add tags=public,b\n",
        encoding="utf-8",
    )
    assert read_keys(path) == [
        ApiKey("ada", ADA),
        ApiKey("bob", BOB, tools=("search_*", "add"), tags=frozenset({"public", "b"}), scopes=frozenset({"x", "y"})),
    ]


def test_one_name_may_have_two_keys_while_one_replaces_the_other(path: Path) -> None:
    path.write_text(f"ada {ADA}\nada {BOB}\n")
    assert KeyFile(path).names == {"ada"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it contains no key"),
        ("# nobody\n", "it contains no key"),
        (f"ada {ADA}\n{BOB}\n", "line 2: there is no key after the name: a line is NAME KEY"),
        (
            f"ada {ADA} admin\n",
            "scopes=…, profiles=…, team=…, rate=…, concurrency=…, tasks=… or bytes=…, each at most once",
        ),
        (f"ada {ADA} tools=a tools=b\n", "line 1: its part 4 should be"),
        (f"ada {ADA} tools=\n", "line 1: tools= names no tool"),
        (f"a,b {ADA}\n", "line 1: the name of a key has"),
        (f"\nada {ADA}é\n", "line 2: a key is visible ASCII"),
        (f"ada sha256:{ADA}\n", "line 1: after sha256: write the 64"),
        (f"ada {ADA}\n# and\nbob {ADA}\n", "line 3: the same key is in line 1"),
    ],
)
def test_a_bad_file_is_refused_by_line_and_remedy_and_without_a_key(path: Path, text: str, message: str) -> None:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(KeyFileError) as caught:
        KeyFile(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert ADA not in str(caught.value)
    assert BOB not in str(caught.value)


def test_all_problems_are_told_at_once(path: Path) -> None:
    path.write_text("ada\nbob\n")
    with pytest.raises(KeyFileError) as caught:
        KeyFile(path)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["line 1", "line 2"]
    assert str(caught.value).endswith(": " + "; ".join(caught.value.problems))


def test_what_is_not_text_is_refused(path: Path) -> None:
    path.write_bytes(b"# \n\xff\xfe")
    with pytest.raises(KeyFileError, match="line 2: it is not UTF-8"):
        KeyFile(path)


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file or directory; is the path right"):
        KeyFile(path.with_name("other"))


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_everybody_can_read_earns_a_warning(
    path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(f"ada {ADA}\n")
    path.chmod(mode)
    KeyFile(path)
    assert ("chmod o-r" in caplog.text) is warns


def test_a_key_that_can_be_guessed_earns_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("ada hunter2\n")
    KeyFile(path)
    assert "the key of 'ada' can be guessed" in caplog.text
    assert "hunter2" not in caplog.text


async def test_other_keys_count_when_the_file_was_replaced(path: Path) -> None:
    keys = following(path)
    changed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keys.keep_current, changed.set)
        replace(path, f"bob {BOB}\n")
        with anyio.fail_after(DEADLINE_SECONDS):
            await changed.wait()
        tasks.cancel_scope.cancel()
    assert await keys.verify_token(ADA) is None
    assert await keys.verify_token(BOB) is not None


async def test_a_file_is_read_when_whoever_writes_it_has_done(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = following(path)
    sizes = iter([1, 2, 3, 4])  # it grows each time it is read, then stays
    seen: list[int] = []
    read: list[list[int]] = []

    def grown(_: Path) -> int:
        seen.append(next(sizes, 4))
        return seen[-1]

    def remember(_: KeyFile) -> list[ApiKey]:
        read.append(list(seen))
        return [ApiKey("bob", BOB)]

    monkeypatch.setattr("bridge.server.auth.keys._mark", grown)
    monkeypatch.setattr(KeyFile, "_read", remember)
    changed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keys.keep_current, changed.set)
        with anyio.fail_after(DEADLINE_SECONDS):
            await changed.wait()
        tasks.cancel_scope.cancel()
    assert read == [[1, 2, 3, 4, 4, 4]]


@pytest.mark.parametrize("spoil", ["a bad line", "nothing", "no file"])
async def test_a_changed_file_that_is_bad_changes_nothing_and_says_so_loudly(path: Path, spoil: str) -> None:
    keys = following(path)
    told = anyio.Event()
    records: list[logging.LogRecord] = []

    class Watching(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.ERROR:
                records.append(record)
                told.set()

    handler = Watching()
    logging.getLogger("bridge.server.auth").addHandler(handler)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keys.keep_current, lambda: pytest.fail("nothing has changed"))
            replace(path, {"a bad line": "bob\n", "nothing": ""}.get(spoil))
            with anyio.fail_after(DEADLINE_SECONDS):
                await told.wait()
            tasks.cancel_scope.cancel()
    finally:
        logging.getLogger("bridge.server.auth").removeHandler(handler)
    assert "the previous keys stay in use" in records[0].getMessage()
    assert await keys.verify_token(ADA) is not None


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="whoever is root may read everything")
def test_a_file_that_may_not_be_read_is_refused(path: Path) -> None:
    path.chmod(0)
    with pytest.raises(KeyFileError, match="Permission denied"):
        KeyFile(path)

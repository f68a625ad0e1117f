"""Keys in a file that is followed: one a line.

# name   key, or sha256:… of it    what its bearer may use, where that is not everything
alice    3q8f0c…
ci       sha256:9f86d081884c…      tools=search_*,get_booking  scopes=bookings:read
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio.to_thread import run_sync

from bridge.errors import BridgeError, DefinitionError
from bridge.server.auth.keys import MIN_KEY_CHARS, ApiKey, ApiKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from bridge.server.auth.token import VerifiedToken

_logger = logging.getLogger("bridge.server.auth")

CHECK_SECONDS = 1.0
"""How often the file is looked at; a change counts once it has stood still for as long."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A file longer than this is none of keys."""


class KeyFileError(BridgeError):
    """A file of keys that cannot be used: all its problems at once, with their lines, and without what stands there.

    Attributes:
        path: The file.
        problems: Every problem that was found.
    """

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"the keys in {str(path)!r} cannot be used: {'; '.join(problems)}")
        self.path = path
        self.problems = tuple(problems)


class KeyFile:
    """Keys from a file, a `TokenVerifier` of the SDK. While the server runs, the file is followed.

    A changed file that cannot be used changes nothing: the keys from before stay, and the log says why.

    Args:
        path: The file; it is read at once.
        check_seconds: How often it is looked at.

    Raises:
        KeyFileError: It cannot be used; the message names lines and remedies.
    """

    def __init__(self, path: str | PathLike[str], *, check_seconds: float = CHECK_SECONDS) -> None:
        self.path = Path(path)
        self._check_seconds = check_seconds
        self._seen = _mark(self.path)
        self._keys = ApiKeys(*self._read())

    @property
    def names(self) -> frozenset[str]:
        """What the bearers are called."""
        return self._keys.names

    @property
    def tools(self) -> frozenset[str]:
        """As `ApiKeys.tools`."""
        return self._keys.tools

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """As `ApiKeys.verify_token`."""
        return await self._keys.verify_token(token)

    async def keep_current(self, changed: Callable[[], None]) -> None:
        """Follow the file until cancelled.

        Args:
            changed: Called after other keys have been read.
        """
        while True:
            await anyio.sleep(self._check_seconds)
            mark = await run_sync(_mark, self.path)
            if mark == self._seen:
                continue
            await anyio.sleep(self._check_seconds)
            if mark != await run_sync(_mark, self.path):
                continue  # whoever writes it has not done
            self._seen = mark
            try:
                self._keys.replace(*await run_sync(self._read))
            except (KeyFileError, DefinitionError) as error:
                _logger.error("%s; the keys from before stay in use", error)  # noqa: TRY400 - the message says it all
            else:
                _logger.warning("keys were read again from %r: %s", str(self.path), ", ".join(sorted(self.names)))
                changed()

    def _read(self) -> list[ApiKey]:
        keys = read_keys(self.path)
        for key in keys:
            if key.is_short:
                _logger.warning("the key of %r can be guessed: use %d characters or more", key.name, MIN_KEY_CHARS)
        return keys

    def __repr__(self) -> str:
        return f"KeyFile({str(self.path)!r})"


def read_keys(path: Path) -> list[ApiKey]:
    """The keys in a file.

    Raises:
        KeyFileError: It cannot be used.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode) and mode & stat.S_IROTH:
            _logger.warning("every user of this machine can read the keys in %r: chmod o-r %s", str(path), path)
        text = _text_of(path)
    except OSError as error:
        raise KeyFileError(
            path, [f"{error.strerror or error}; is the path right, and may this user read it?"]
        ) from None
    keys: list[ApiKey] = []
    problems: list[str] = []
    lines: dict[bytes, int] = {}
    for number, fields in _lines(text):
        try:
            key = _key_of(fields)
        except DefinitionError as error:
            problems.append(f"line {number}: {error}")
            continue
        if key.digest in lines:
            problems.append(f"line {number}: the key stands in line {lines[key.digest]} already; give out another")
        lines.setdefault(key.digest, number)
        keys.append(key)
    if not keys and not problems:
        problems.append("there is none in it, and nobody could come in; a line is NAME KEY [tools=…] [scopes=…]")
    if problems:
        raise KeyFileError(path, problems)
    return keys


class _Mark(NamedTuple):
    """What of a file shows that it was changed; a mounted secret changes by its inode."""

    inode: int
    size: int
    modified_ns: int


def _mark(path: Path) -> _Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Mark(found.st_ino, found.st_size, found.st_mtime_ns)


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise KeyFileError(path, [f"it is over {MAX_FILE_BYTES} bytes long, and no file of keys"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise KeyFileError(path, [f"line {line}: it is not UTF-8; write it as text"]) from None


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, stripped.split()


def _key_of(fields: list[str]) -> ApiKey:
    """One line. What is wrong with it is told without what stands there: the key may stand in any place."""
    if len(fields) < 2:  # noqa: PLR2004 - a name and a key
        raise DefinitionError("there is no key after the name: a line is NAME KEY [tools=…] [scopes=…]")
    name, key, *options = fields
    found: dict[str, tuple[str, ...]] = {}
    for position, option in enumerate(options, start=3):
        label, _, value = option.partition("=")
        if label not in {"tools", "scopes"} or label in found:
            raise DefinitionError(f"its part {position} should be tools=… or scopes=…, each at most once")
        found[label] = tuple(part for part in value.split(",") if part)
        if label == "tools" and not found[label]:
            raise DefinitionError("tools= names no tool; leave it out for all, or take the line away for none")
    scopes = frozenset(found["scopes"]) if "scopes" in found else None
    return ApiKey(name, key, tools=found.get("tools"), scopes=scopes)

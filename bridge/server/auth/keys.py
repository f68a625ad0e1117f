"""API keys, given in Python or in a watched file with one key a line.

# name   key, or sha256: and its digest   permissions, unless all
alice    3q8f0c…
guest    8d31e0…                          tags=public
ci       sha256:9f86d081884c…             tools=search_*,get_booking  scopes=bookings:read
carol    7b1e2f…                          profiles=data-team  team=data  rate=100/1m
"""

from __future__ import annotations

import logging
import math
import re
import stat
from dataclasses import InitVar, dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

import anyio
from anyio.to_thread import run_sync

from bridge.errors import BridgeError, DefinitionError
from bridge.server.auth.access import scopes_of
from bridge.server.auth.tokens import VerifiedToken
from bridge.server.limits.limits import CallerLimits
from bridge.tools.annotated_checks import check_fields
from bridge.tools.checks import require_seconds, require_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

KEYS = "key"
"""Issuer of the keys of this server."""
HASHED = "sha256:"
"""Prefix of a digest in place of a key."""
MIN_KEY_CHARS = 16
"""Recommended minimum length of a key; a shorter one can be guessed, or found from its digest."""

_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,128}")
_KEY = re.compile(r"[\x21-\x7e]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_TOOL = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,256}")
_LISTS = ("tools", "tags", "scopes", "profiles")
_LIMITS = ("rate", "concurrency", "tasks", "bytes")
_LABELS = (*_LISTS, "team", *_LIMITS)
_LINE = "NAME KEY [tools=…] [tags=…] [scopes=…] [profiles=…] [team=…] [rate=…] [concurrency=…] [tasks=…] [bytes=…]"
_logger = logging.getLogger("bridge.server.auth")

CHECK_SECONDS = 1.0
"""Default seconds between checks of the file; a change is read once the file is unchanged for as long."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Maximum length of a file of keys."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, of which only the digest is kept.

    Args:
        name: Name of its bearer, for logs, limits, audits and tools. Several keys may have the same name, for rotation.
        key: The key, visible ASCII without spaces; or ``sha256:`` and its digest in hexadecimal digits.
        tools: Names and patterns (``search_*``) of the tools, resources and prompts that its bearer sees and may use;
            None for all.
        tags: Tags, of which the tools, resources and prompts that its bearer sees and may use have at least one; None
            for all.
        scopes: Scopes of its bearer; None for every scope of the server.
        profiles: Names and patterns of the profiles that its bearer may use, and of nothing else of the server; None
            for all that need no claims.
        team: Its team, whose members share limits; None for none.
        limits: Limits of its bearer, in place of those of all callers; None for those.

    Raises:
        DefinitionError: The name, the key, a tool, a tag, a scope or a profile is invalid.
    """

    name: str
    key: InitVar[str]
    tools: tuple[str, ...] | None = field(default=None, kw_only=True)
    tags: frozenset[str] | None = field(default=None, kw_only=True)
    scopes: frozenset[str] | None = field(default=None, kw_only=True)
    profiles: tuple[str, ...] | None = field(default=None, kw_only=True)
    team: str | None = field(default=None, kw_only=True)
    limits: CallerLimits | None = field(default=None, kw_only=True)
    digest: bytes = field(init=False, repr=False)
    is_short: bool = field(init=False, repr=False, compare=False)
    """True if the key is so short that it can be guessed."""

    def __post_init__(self, key: str) -> None:
        require_type(key, str, "the key of an API key", "text")
        check_fields(self)
        if not _NAME.fullmatch(self.name):
            raise DefinitionError("the name of a key has 1 to 128 ASCII letters, digits and _.@+-")
        if self.team is not None and not _NAME.fullmatch(self.team):
            raise DefinitionError("the name of a team has 1 to 128 ASCII letters, digits and _.@+-")
        is_hashed = key.startswith(HASHED)
        if is_hashed and not _DIGEST.fullmatch(key.removeprefix(HASHED)):
            raise DefinitionError(f"after {HASHED} write the 64 hexadecimal digits that sha256sum prints for the key")
        if not _KEY.fullmatch(key):
            raise DefinitionError("a key is visible ASCII without spaces; create one by: openssl rand -hex 32")
        for label, given in (("tools", self.tools), ("profiles", self.profiles)):
            for each in given or ():
                if not _TOOL.fullmatch(each):
                    raise DefinitionError(f"the {label} of a key are names and patterns such as search_*, not {each!r}")
            object.__setattr__(self, label, None if given is None else tuple(sorted(set(given))))
        digest = bytes.fromhex(key.removeprefix(HASHED)) if is_hashed else sha256(key.encode()).digest()
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "is_short", not is_hashed and len(key) < MIN_KEY_CHARS)
        tags: Any = self.tags
        if isinstance(tags, str) or not all(tags or ()):
            raise DefinitionError(f"the tags of a key are a set of texts, such as {{'public'}}, not {tags!r}")
        object.__setattr__(self, "tags", None if self.tags is None else frozenset(self.tags))
        object.__setattr__(self, "scopes", None if self.scopes is None else scopes_of(self.scopes))

    def as_token(self, token: str = "") -> VerifiedToken:
        """Return it as a verified credential, with the secret of a request; empty for none."""
        return VerifiedToken(
            token=token,
            client_id=self.name,
            is_key=True,
            scopes=sorted(self.scopes or ()),
            has_all_scopes=self.scopes is None,
            tools=self.tools,
            tags=self.tags,
            profiles=self.profiles,
            team=self.team or "",
            limits=self.limits,
            keep_seconds=math.inf,
        )


class ApiKeys:
    """API keys: a `TokenVerifier` of the SDK.

    Args:
        keys: The keys.

    Raises:
        DefinitionError: Two keys are the same.
    """

    def __init__(self, *keys: ApiKey) -> None:
        self._keys = _distinct(keys)
        self._listeners: list[WeakMethod[Callable[[], None]]] = []

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """The keys, which have digests in place of the secrets."""
        return self._keys

    @property
    def names(self) -> frozenset[str]:
        """Names of the bearers."""
        return frozenset(key.name for key in self._keys)

    @property
    def has_teams(self) -> bool:
        """True if a bearer has a team."""
        return any(key.team for key in self._keys)

    @property
    def has_limits(self) -> bool:
        """True if a bearer has limits of its own."""
        return any(key.limits is not None for key in self._keys)

    @property
    def tools(self) -> frozenset[str]:
        """Names and patterns of tools in the keys."""
        return frozenset(tool for key in self._keys for tool in key.tools or ())

    def replace(self, *keys: ApiKey) -> None:
        """Replace all keys, from any thread; requests with a key that was removed are refused, and its streams end.

        Raises:
            DefinitionError: Two keys are the same; nothing was changed.
        """
        self._keys = _distinct(keys)
        for each in self._listeners:
            if (listener := each()) is not None:
                listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a method after the keys were replaced, in the thread that did, while its object is in use."""
        self._listeners = [each for each in self._listeners if each() is not None]
        self._listeners.append(WeakMethod(listener))

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Verify a key, in constant time; None if it is unknown."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        found = None
        for key in self._keys:  # without break: constant time
            if compare_digest(digest, key.digest):
                found = key
        return None if found is None else found.as_token(token)

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(sorted(self.names))})"


def _distinct(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    names: dict[bytes, str] = {}
    of_name: dict[str, tuple[str | None, CallerLimits | None]] = {}
    for key in keys:
        if key.digest in names:
            raise DefinitionError(f"the keys of {names[key.digest]!r} and {key.name!r} are the same; create another")
        names[key.digest] = key.name
        terms = (key.team, key.limits)
        if of_name.setdefault(key.name, terms) != terms:
            raise DefinitionError(f"the keys of {key.name!r} have different teams or limits; make them equal")
    return tuple(keys)


class KeyFileError(BridgeError):
    """A file of keys is invalid. The message lists every problem with its line, without the line's text.

    Attributes:
        path: The file.
        problems: The problems.
    """

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"the keys in {str(path)!r} cannot be used: {'; '.join(problems)}")
        self.path = path
        self.problems = tuple(problems)


class KeyFile(ApiKeys):
    """API keys in a file that is watched while the server runs: a `TokenVerifier` of the SDK.

    If a changed file is invalid, the previous keys stay in use, and the error is logged.

    Args:
        path: The file; it is read at once.
        check_seconds: Seconds between checks of the file.

    Raises:
        KeyFileError: The file is invalid.
    """

    def __init__(self, path: str | PathLike[str], *, check_seconds: float = CHECK_SECONDS) -> None:
        require_seconds(check_seconds, "check_seconds", optional=False)
        self.path = Path(path)
        self._check_seconds = check_seconds
        self._seen = _mark(self.path)
        super().__init__(*self._read())
        self._had_limits = self.has_limits

    async def keep_current(self, changed: Callable[[], None]) -> None:
        """Watch the file, until cancelled."""
        while True:
            await anyio.sleep(self._check_seconds)
            state = await run_sync(_mark, self.path)
            if state == self._seen:
                continue
            await anyio.sleep(self._check_seconds)
            if state != await run_sync(_mark, self.path):
                continue  # still being written
            self._seen = state
            try:
                self.replace(*await run_sync(self._read))
            except (KeyFileError, DefinitionError) as error:
                _logger.error("%s; the previous keys stay in use", error)  # noqa: TRY400 - needs no traceback
            else:
                if self.has_limits and not self._had_limits:
                    _logger.warning("the first limits in the keys apply after a restart")
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
    """Read a file of keys.

    Raises:
        KeyFileError: The file is invalid.
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
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            key = _key_of(line.split())
        except DefinitionError as error:
            problems.append(f"line {number}: {error}")
            continue
        if key.digest in lines:
            problems.append(f"line {number}: the same key is in line {lines[key.digest]}; create another")
        lines.setdefault(key.digest, number)
        keys.append(key)
    if not keys and not problems:
        problems.append(f"it contains no key; a line is {_LINE}")
    if problems:
        raise KeyFileError(path, problems)
    return keys


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Return the state of a file that shows changes; a mounted secret changes its inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise KeyFileError(path, [f"it is over {MAX_FILE_BYTES} bytes long"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise KeyFileError(path, [f"line {line}: it is not UTF-8; write it as text"]) from None


def _key_of(fields: list[str]) -> ApiKey:
    """Parse a line. Error messages never contain its text, since the key may be in any field."""
    if len(fields) < 2:  # noqa: PLR2004 - a name and a key
        raise DefinitionError(f"there is no key after the name: a line is {_LINE}")
    name, key, *options = fields
    found: dict[str, tuple[str, ...]] = {}
    for position, option in enumerate(options, start=3):
        label, _, value = option.partition("=")
        if label not in _LABELS or label in found:
            *others, last = (f"{each}=…" for each in _LABELS)
            raise DefinitionError(f"its part {position} should be {', '.join(others)} or {last}, each at most once")
        found[label] = tuple(part for part in value.split(",") if part) if label in _LISTS else (value,)
        if label in _LISTS and label != "scopes" and not found[label]:
            raise DefinitionError(f"{label}= names no {label[:-1]}; leave it out for all, or remove the line for none")
    tags, scopes = (frozenset(found[label]) if label in found else None for label in ("tags", "scopes"))
    return ApiKey(
        name,
        key,
        tools=found.get("tools"),
        tags=tags,
        scopes=scopes,
        profiles=found.get("profiles"),
        team=found["team"][0] if "team" in found else None,
        limits=CallerLimits.read({label: found[label][0] for label in _LIMITS if label in found}),
    )

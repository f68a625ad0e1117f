"""API keys: secrets that a server's operator hands out, each with a name."""

from __future__ import annotations

import math
import re
from dataclasses import InitVar, dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.server.auth.access import scopes_of
from bridge.server.auth.token import VerifiedToken

if TYPE_CHECKING:
    from collections.abc import Iterable

HASHED = "sha256:"
"""How a key begins of which only the digest is written down."""

MIN_KEY_CHARS = 16
"""A key shorter than this can be guessed, or found from its digest."""

_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,128}")
_KEY = re.compile(r"[\x21-\x7e]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_TOOL = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,256}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. Only its digest is kept.

    Args:
        name: What its bearer is called: in logs, limits, audits and to the tools. Several keys may have one name, as
            while one replaces the other.
        key: The key, visible ASCII without spaces; or ``sha256:`` and its digest in hexadecimal digits.
        tools: Names and patterns (``search_*``) of the tools that its bearer may use; None for all. To the bearer there
            are no others.
        scopes: What its bearer is granted; None for every scope that the server knows.

    Raises:
        DefinitionError: The name, the key or one of the rest is not written as it has to be.
    """

    name: str
    key: InitVar[str]
    tools: tuple[str, ...] | None = field(default=None, kw_only=True)
    scopes: frozenset[str] | None = field(default=None, kw_only=True)
    digest: bytes = field(init=False, repr=False)
    is_short: bool = field(init=False, repr=False, compare=False)
    """Whether the key is so short that it can be guessed."""

    def __post_init__(self, key: str) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError("the name of a key is made of 1 to 128 ASCII letters, digits and _.@+-")
        is_hashed = key.startswith(HASHED)
        if is_hashed and not _DIGEST.fullmatch(key.removeprefix(HASHED)):
            raise DefinitionError(f"after {HASHED} stand the 64 hexadecimal digits that sha256sum prints for the key")
        if not _KEY.fullmatch(key):
            raise DefinitionError("a key is visible ASCII without spaces; one to begin with: openssl rand -hex 32")
        for tool in self.tools or ():
            if not _TOOL.fullmatch(tool):
                raise DefinitionError(f"the tools of a key are names and patterns such as search_*, not {tool!r}")
        digest = bytes.fromhex(key.removeprefix(HASHED)) if is_hashed else sha256(key.encode()).digest()
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "is_short", not is_hashed and len(key) < MIN_KEY_CHARS)
        object.__setattr__(self, "tools", None if self.tools is None else tuple(sorted(set(self.tools))))
        object.__setattr__(self, "scopes", None if self.scopes is None else scopes_of(self.scopes))


class ApiKeys:
    """The keys that let somebody in: a `TokenVerifier` of the SDK.

    Args:
        keys: The keys.

    Raises:
        DefinitionError: Two of them are the same.
    """

    def __init__(self, *keys: ApiKey) -> None:
        self._keys = _distinct(keys)

    @property
    def names(self) -> frozenset[str]:
        """What the bearers are called."""
        return frozenset(key.name for key in self._keys)

    @property
    def tools(self) -> frozenset[str]:
        """The names and patterns of tools that some of them are for."""
        return frozenset(tool for key in self._keys for tool in key.tools or ())

    def replace(self, *keys: ApiKey) -> None:
        """Let exactly these keys let somebody in.

        Raises:
            DefinitionError: Two of them are the same; nothing was changed.
        """
        self._keys = _distinct(keys)

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Whose key it is, if it is one; found in a time that tells nothing of any key."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        found = None
        for key in self._keys:  # all of them, whichever it is
            if compare_digest(digest, key.digest):
                found = key
        if found is None:
            return None
        return VerifiedToken(
            token=token,
            client_id=found.name,
            is_key=True,
            scopes=sorted(found.scopes or ()),
            has_all_scopes=found.scopes is None,
            tools=found.tools,
            keep_seconds=math.inf,
        )

    def __repr__(self) -> str:
        return f"ApiKeys({', '.join(sorted(self.names))})"


def _distinct(keys: Iterable[ApiKey]) -> tuple[ApiKey, ...]:
    names: dict[bytes, str] = {}
    for key in keys:
        if key.digest in names:
            raise DefinitionError(f"the keys of {names[key.digest]!r} and {key.name!r} are the same; give out another")
        names[key.digest] = key.name
    return tuple(keys)

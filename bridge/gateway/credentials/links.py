"""Links: unguessable URLs with which callers of a gateway open its pages, each for one caller, one server and one use.

A link authorizes nothing: the pages find out who has opened it, and refuse everybody else (MCP 2026-07-28,
"Elicitation", Phishing). It contains neither a credential nor personal data.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Protocol

from bridge.gateway.credentials.store import CredentialKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.types import Json

LINK_SECONDS = 900.0
"""Seconds within which a link may be used."""
MAX_LINKS = 20
"""Maximum unused links of one caller; the oldest is replaced."""

_NAME = "link:"


class OnceStore(Protocol):
    """Values that are used once; see `bridge.gateway.credentials.store.CredentialStore`."""

    async def put_once(self, name: str, value: Json, seconds: float) -> None:
        """Keep a value for some seconds."""
        ...

    async def find_once(self, name: str) -> Json | None:
        """Return a value, which stays."""
        ...

    async def take_once(self, name: str) -> Json | None:
        """Remove and return a value, for one taker."""
        ...


@dataclass(frozen=True, slots=True)
class Link:
    """An unused link."""

    token: str = field(repr=False)
    """Its secret, the last part of the URL's path."""
    id: str
    """Its public identifier: the ``elicitationId``."""
    key: CredentialKey
    """The caller that it is for, and the server."""
    scope: str | None = None
    """Scopes that the server asks for beside the usual ones, separated by spaces; None for none."""


class Links:
    """The links of a gateway, for all of its processes and replicas.

    A caller who is asked several times for the same server gets the same link, until half of its time is over.

    Args:
        store: Keeps them.
        seconds: Seconds until a link expires.
        max_links: Maximum unused links of one caller, for each process.
        clock: Returns the time in seconds.

    Every method raises `CredentialStoreError` if the store cannot be used.
    """

    def __init__(
        self,
        store: OnceStore,
        *,
        seconds: float = LINK_SECONDS,
        max_links: int = MAX_LINKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.seconds = seconds
        self._max_links = max_links
        self._clock = clock
        self._made: dict[Link, float] = {}
        """Links of this process with their time of expiry, the oldest first."""

    async def make(self, key: CredentialKey, scope: str | None = None) -> Link:
        """Return a link for a caller and a server."""
        now = self._clock()
        self._made = {link: until for link, until in self._made.items() if until > now}
        own = [link for link in self._made if (link.key.issuer, link.key.subject) == (key.issuer, key.subject)]
        for link in own:
            is_fresh = self._made[link] - now > self.seconds / 2
            if (link.key, link.scope) == (key, scope) and is_fresh and await self.find(link.token) is not None:
                return link
        for link in own[: max(0, len(own) + 1 - self._max_links)]:
            await self.take(link.token)
        link = Link(token_urlsafe(), token_urlsafe(12), key, scope)
        self._made[link] = now + self.seconds
        await self._store.put_once(
            _NAME + link.token, {"id": link.id, "key": asdict(key), "scope": scope}, self.seconds
        )
        return link

    async def find(self, token: str) -> Link | None:
        """Return an unused link; None if it is unknown, was used, or has expired."""
        return _read(token, await self._store.find_once(_NAME + token))

    async def take(self, token: str) -> Link | None:
        """Use a link; None as for `find`, and for all but one of several that use it at once."""
        link = _read(token, await self._store.take_once(_NAME + token))
        if link is not None:
            self._made.pop(link, None)
        return link


def _read(token: str, value: Json | None) -> Link | None:
    return None if value is None else Link(token, value["id"], CredentialKey(**value["key"]), value["scope"])

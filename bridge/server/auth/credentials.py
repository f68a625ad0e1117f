"""Verified credentials: the authenticated user of a request, and their cache."""

from __future__ import annotations

import re
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from starlette.authentication import SimpleUser

from bridge.server.auth.identity import caller_of
from bridge.server.auth.keys import KEYS
from bridge.server.auth.tokens import VerifiedToken, issuer_in, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.auth.provider import AccessToken
    from starlette.authentication import AuthCredentials

    from bridge.server.auth.access import Access
    from bridge.server.auth.auth import Auth
    from bridge.server.auth.credential_monitor import MonitoredCredential
    from bridge.server.limits.limits import CallerLimits

HEADER = b"authorization"

QUERY_TOKEN = re.compile(rb"(?:^|[&;])(?:access_token|api_key)=")
"""A credential in a query string."""

_MAX_KNOWN = 1024


class RequestUser(SimpleUser):
    """The user with a verified token: a `bridge.server.auth.identity.User`."""

    def __init__(
        self,
        token: AccessToken,
        access: Access,
        monitored: MonitoredCredential | None = None,
        *,
        name: str | None = None,
        team: str = "",
        limits: CallerLimits | None = None,
    ) -> None:
        super().__init__(token.client_id)
        self.access_token = token
        self.scopes = token.scopes
        self.monitored = monitored
        self.limits = limits
        self.expires_at = token.expires_at
        issuer = KEYS if isinstance(token, VerifiedToken) and token.is_key else issuer_in(token) or ""
        self.caller = caller_of(token, name, issuer=issuer, subject=name_of(token, names_issuer=False), team=team)
        self.access = access


class CachedCredential(NamedTuple):
    """A verified credential."""

    user: RequestUser
    credentials: AuthCredentials
    until: float
    """Time at which it has to be verified again, by the monotonic clock."""


class CredentialCache:
    """Cache of at most 1,024 verified credentials, each kept for its token's ``keep_seconds``, until `Auth` changes."""

    def __init__(self, auth: Auth) -> None:
        self._known: dict[bytes, CachedCredential] = {}
        auth.on_change(self.clear)

    @staticmethod
    def key_of(value: bytes) -> bytes:
        """Return the key of a value of the Authorization header.

        It is a digest, so that the time of the look-up reveals nothing about credentials.
        """
        return sha256(value).digest()

    def find(self, key: bytes) -> CachedCredential | None:
        """Return a cached credential; None if it has to be verified."""
        known = self._known.get(key)
        return known if known is not None and monotonic() < known.until else None

    def writer(self) -> Callable[[bytes, CachedCredential], None]:
        """Return a function that stores the credential of a value of the Authorization header.

        Call this before the verification, so that a `clear` meanwhile discards its result.
        """
        known = self._known

        def store(value: bytes, credential: CachedCredential) -> None:
            if len(known) >= _MAX_KNOWN:
                known.pop(next(iter(known)), None)
            known[self.key_of(value)] = credential

        return store

    def discard(self, value: bytes | None) -> bool:
        """Remove a credential that is no longer valid; return True if it was cached."""
        return value is not None and self._known.pop(self.key_of(value), None) is not None

    def clear(self) -> None:
        """Remove every credential."""
        self._known = {}

"""The caller of the current request, and the cache of verified credentials."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from bridge.server.auth.access import EVERYTHING
from bridge.tools.context import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mcp.server.auth.provider import AccessToken
    from starlette.authentication import AuthCredentials

    from bridge.server.auth.access import Access
    from bridge.server.auth.auth import Auth
    from bridge.server.auth.credential_monitor import MonitoredCredential

HEADER = b"authorization"

QUERY_TOKEN = re.compile(rb"(?:^|[&;])(?:access_token|api_key)=")
"""A credential in a query string."""

_MAX_KNOWN = 1024


class RequestUser(AuthenticatedUser):
    """The SDK's authenticated user, with its `Caller` and `Access`."""

    def __init__(
        self,
        token: AccessToken,
        access: Access,
        monitored: MonitoredCredential | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(token)
        self.monitored = monitored
        self.caller = _caller_of(token, name)
        self.access = access


def caller_of_request() -> Caller | None:
    """Return the authenticated caller of the current request; None without authentication."""
    user = auth_context_var.get()
    if user is None:
        return None
    return user.caller if isinstance(user, RequestUser) else _caller_of(user.access_token)


def access_of_request() -> Access:
    """Return the permissions of the current caller: everything without authentication."""
    user = auth_context_var.get()
    return user.access if isinstance(user, RequestUser) else EVERYTHING


def ending_with_credential(end: Callable[[], object]) -> AbstractContextManager[None]:
    """Return a context in which the stream of the request is open; call ``end`` once its credential is invalid."""
    user = auth_context_var.get()
    monitored = user.monitored if isinstance(user, RequestUser) else None
    return nullcontext() if monitored is None else monitored.ending(end)


@contextmanager
def current_access() -> Iterator[Callable[[], Access | None]]:
    """Context of a long request; yields a function that returns its caller's permissions now.

    They may change, as the credential is verified again meanwhile; None once it is no longer valid.
    """
    user = auth_context_var.get()
    monitored = user.monitored if isinstance(user, RequestUser) else None
    if monitored is None:
        access = access_of_request()
        yield lambda: access
        return
    is_valid = True

    def end() -> None:
        nonlocal is_valid
        is_valid = False

    with monitored.ending(end):
        yield lambda: monitored.access if is_valid else None


def _caller_of(token: AccessToken, name: str | None = None) -> Caller:
    return Caller(name or token.subject or token.client_id, frozenset(token.scopes), token.claims or {})


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

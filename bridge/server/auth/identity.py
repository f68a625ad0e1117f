"""The caller of the current request; credential cache.

Identity: who sent the request that is being answered, and what the sender may do.

Recognition: credentials that were found good a moment ago, which need not be looked at again.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from bridge.server.auth.access import EVERYTHING
from bridge.tools.context import Caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mcp.server.auth.provider import AccessToken
    from starlette.authentication import AuthCredentials

    from bridge.server.auth.access import Access
    from bridge.server.auth.auth import Auth
    from bridge.server.auth.credential_monitor import MonitoredCredential

HEADER = b"authorization"

QUERY_TOKEN = re.compile(rb"(?:^|[&;])(?:access_token|api_key)=")
"""A credential in an address."""

_MAX_KNOWN = 1024


class RequestUser(AuthenticatedUser):
    """The SDK's authenticated user, with what tools are told of it.

    Args:
        token: The credential, verified.
        access: What it lets its bearer do.
        tenure: How long it holds for streams; None where there are none.
        name: What its bearer is called; None for the credential's subject, else its client.
    """

    def __init__(
        self, token: AccessToken, access: Access, tenure: MonitoredCredential | None = None, *, name: str | None = None
    ) -> None:
        super().__init__(token)
        self.tenure = tenure
        self.caller = _caller_of(token, name)
        self.access = access


def caller_of_request() -> Caller | None:
    """Who calls, where the transport let nobody in without a credential."""
    user = auth_context_var.get()
    if user is None:
        return None
    return user.caller if isinstance(user, RequestUser) else _caller_of(user.access_token)


def access_of_request() -> Access:
    """What the caller may do: everything, where nobody was asked for a credential."""
    user = auth_context_var.get()
    return user.access if isinstance(user, RequestUser) else EVERYTHING


def ending_with_credential(end: Callable[[], object]) -> AbstractContextManager[None]:
    """The time during which the stream is open that the request asked for.

    Args:
        end: Called when the credential of the request holds no more.
    """
    user = auth_context_var.get()
    tenure = user.tenure if isinstance(user, RequestUser) else None
    return nullcontext() if tenure is None else tenure.ending(end)


def _caller_of(token: AccessToken, name: str | None = None) -> Caller:
    return Caller(name or token.subject or token.client_id, frozenset(token.scopes), token.claims or {})


class CachedCredential(NamedTuple):
    """A credential that was found good."""

    user: RequestUser
    credentials: AuthCredentials
    until: float
    """When it has to be looked at again, by the monotonic clock."""


class CredentialCache:
    """The credentials that were found good: at most a thousand, each kept no longer than its verifier says.

    Args:
        auth: What finds them good; when it changes, all are looked at again.
    """

    def __init__(self, auth: Auth) -> None:
        self._known: dict[bytes, CachedCredential] = {}
        auth.on_change(self.forget)

    def find(self, value: bytes) -> CachedCredential | None:
        """Return a credential that was verified a moment ago; None where it has to be verified.

        It is looked up by its digest, so that the time of the look-up reveals nothing of it.

        Args:
            value: The value of the Authorization header.
        """
        known = self._known.get(sha256(value).digest())
        return known if known is not None and monotonic() < known.until else None

    def remembering(self) -> CacheWriter:
        """What takes a verdict that is about to be asked for; what is forgotten meanwhile is not brought back."""
        return CacheWriter(self._known)

    def disown(self, value: bytes | None) -> bool:
        """Forget the value of a header that is good no more; whether it was, and had not been forgotten before."""
        return value is not None and self._known.pop(sha256(value).digest(), None) is not None

    def forget(self) -> None:
        """Look at every credential again."""
        self._known = {}


class CacheWriter:
    """Takes one verdict.

    Args:
        known: Where it goes.
    """

    def __init__(self, known: dict[bytes, CachedCredential]) -> None:
        self._known = known

    def remember(self, value: bytes, known: CachedCredential) -> None:
        """Keep what was found of the value of a header."""
        if len(self._known) >= _MAX_KNOWN:
            self._known.pop(next(iter(self._known)), None)
        self._known[sha256(value).digest()] = known

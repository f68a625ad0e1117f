"""The caller of the current request, and its permissions."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from bridge.server.auth.access import EVERYTHING
from bridge.tools.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from mcp.server.auth.provider import AccessToken

    from bridge.server.auth.access import Access, Restricted
    from bridge.server.auth.credential_monitor import MonitoredCredential


class User(Protocol):
    """The verified caller of a request."""

    @property
    def caller(self) -> Caller:
        """The caller, as tools see it."""
        ...

    @property
    def access(self) -> Access:
        """Its permissions."""
        ...

    @property
    def expires_at(self) -> float | None:
        """Time at which its credential expires, in seconds since 1970; None for never."""
        ...

    @property
    def monitored(self) -> MonitoredCredential | None:
        """Its credential, if that is verified again while streams are open."""
        ...


current_user: ContextVar[User | None] = ContextVar("bridge.server.user", default=None)
"""The verified caller of the current request; None without authentication."""


def caller_of_request() -> Caller | None:
    """Return the authenticated caller of the current request; None without authentication."""
    user = current_user.get()
    return None if user is None else user.caller


def access_of_request() -> Access:
    """Return the permissions of the current caller: everything without authentication."""
    user = current_user.get()
    return EVERYTHING if user is None else user.access


def expiry_of_request() -> float | None:
    """Return the time at which the credential of the current request expires, in seconds since 1970; None for never."""
    user = current_user.get()
    return None if user is None else user.expires_at


def ending_with_credential(end: Callable[[], object], profile: Restricted | None) -> AbstractContextManager[None]:
    """Return a context in which the stream of the request is open.

    Args:
        end: Called once the credential is invalid, or no longer gives the profile.
        profile: The profile that the stream is of; None for none.
    """
    monitored = _monitored()
    return nullcontext() if monitored is None else monitored.ending(end, profile)


@contextmanager
def current_access(profile: Restricted | None) -> Iterator[Callable[[], Access | None]]:
    """Context of a long request; yields a function that returns its caller's permissions now.

    They may change, as the credential is verified again meanwhile; None once it is no longer valid, or no longer gives
    the profile that the request is of.
    """
    monitored = _monitored()
    if monitored is None:
        access = access_of_request()
        yield lambda: access
        return
    is_valid = True

    def end() -> None:
        nonlocal is_valid
        is_valid = False

    with monitored.ending(end, profile):
        yield lambda: monitored.access if is_valid else None


def caller_of(
    token: AccessToken, name: str | None = None, *, issuer: str = "", subject: str = "", team: str = ""
) -> Caller:
    """Return the bearer of a token, under a name if one is given; see `bridge.tools.caller.Caller`."""
    shown = name or token.subject or token.client_id
    return Caller(shown, frozenset(token.scopes), token.claims or {}, issuer, subject, team)


def principal_of(user: Any) -> tuple[str, str | None, str | None] | None:
    """Return whose token a user has: its client, issuer and subject; None for a user without a token.

    A part that its verifier does not tell is None, so that comparisons rest on the others.
    """
    token: AccessToken | None = getattr(user, "access_token", None)
    if token is None:
        return None
    issuer = (token.claims or {}).get("iss")
    return token.client_id, None if issuer is None else str(issuer), token.subject


def _monitored() -> MonitoredCredential | None:
    """Return the credential of the current request; None if it is not verified again."""
    user = current_user.get()
    return None if user is None else user.monitored

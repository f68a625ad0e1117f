"""Verified tokens, their claims, the names of their bearers, and errors.

Tools, memories, limits and audits identify callers by unique names:

    credential                   name                         example
    key                          the key's name               ci
    token with a subject         the subject                  42
    token without a subject      client:ID                    client:app
    token, several issuers       as above, and the issuer     42@https://login.example.org

A subject that itself begins with ``client:`` or ``subject:`` gets the prefix ``subject:``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mcp.server.auth.provider import AccessToken
from pydantic import Field

from bridge.errors import BridgeError
from bridge.server.limits.limits import CallerLimits  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CLIENT = "client:"
_SUBJECT = "subject:"


def _scopes_in(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of claims: ``scope`` (RFC 8693, section 4.2) or ``scp``, as text or as a list."""
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def audiences_of(audience: str) -> tuple[str, ...]:
    """Return the equivalent forms of an audience: a URL with and without a trailing slash."""
    bare = audience.rstrip("/")
    return (bare, bare + "/") if audience.startswith(("http://", "https://")) else (audience,)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    found = claims.get(name)
    return found if isinstance(found, str) and found else None


def name_of(token: AccessToken, *, names_issuer: bool) -> str:
    """Return the name of a bearer, with its issuer if there may be several."""
    if isinstance(token, VerifiedToken) and token.is_key:
        return token.client_id
    if not (name := token.subject or ""):
        name = _CLIENT + token.client_id  # a subject of the same issuer may have the client's id
    elif name.startswith((_CLIENT, _SUBJECT)):
        name = _SUBJECT + name
    issuer = issuer_in(token) if names_issuer else None
    return name if issuer is None else f"{name}@{issuer}"


def issuer_in(token: AccessToken) -> str | None:
    """Return the issuer in the claims of a token; None if there is none."""
    return _text(token.claims or {}, "iss")


class TokenRefusedError(BridgeError):
    """A token is invalid. The message is sent to its bearer, and contains nothing of the token."""


class TokenExpiredError(TokenRefusedError):
    """A genuine token has expired; it does not count as a failed attempt."""


class IssuerUnavailableError(BridgeError):
    """A token cannot be verified, because its issuer cannot be reached.

    Attributes:
        retry_after_seconds: Seconds after which the client may try again.
    """

    def __init__(self, message: str, retry_after_seconds: float = 10.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class VerifiedToken(AccessToken):
    """The SDK's AccessToken with the permissions of its bearer. Its ``repr`` does not contain the credential."""

    token: str = Field(repr=False)
    claims: dict[str, Any] | None = Field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that are visible to the bearer; None for all."""
    tags: frozenset[str] | None = None
    """Tags, of which a tool that is visible to the bearer has at least one; None for all."""
    profiles: tuple[str, ...] | None = None
    """Names and patterns of the profiles to which a key is limited; None for no limit."""
    team: str = ""
    """Team of the bearer of a key; empty for none, or that of `Auth`."""
    limits: CallerLimits | None = None
    """Limits of the bearer of a key, in place of those of all callers; None for those."""
    has_all_scopes: bool = False
    """True if the bearer has every scope of the server, beside `scopes`."""
    keep_seconds: float = 0.0
    """Seconds for which the token need not be verified again."""
    is_key: bool = False
    """True for an API key, whose bearer is named in the server's configuration."""

    @classmethod
    def of(cls, token: str, claims: Mapping[str, Any], *, subjects: Iterable[str] = ("sub",), **more: Any) -> Self:
        """Create one from the claims of an issuer's token.

        Args:
            token: The credential.
            claims: The claims, which have been verified.
            subjects: Names of the claims that may contain the subject, the preferred ones first.
            more: Further attributes.

        Raises:
            TokenRefusedError: The claims name no bearer.
        """
        subject = next(filter(None, (_text(claims, name) for name in subjects)), None)
        client = _text(claims, "client_id") or _text(claims, "azp") or subject
        if client is None:
            raise TokenRefusedError("the token names no bearer: it has neither sub nor client_id")
        scopes = _scopes_in(claims)
        return cls(token=token, client_id=client, subject=subject, scopes=scopes, claims=dict(claims), **more)

"""Verified tokens, claims, principal names, errors.

What the claims of a token say, however its issuer writes them: for signed tokens as for introspected ones.

Principals: what the bearers of credentials are called, so that no two of them are called the same.

    key            its name
    token          its subject, else client:ID                 42          client:app
    … of several   the same, and the issuer                    42@https://login.example.org

Tools, memories, limits and audits go by the name. A subject that is written as a client is, is ``subject:client:app``.

Refusals: why a credential lets nobody in.

A credential that was verified, and what is known of its bearer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.server.auth.provider import AccessToken
from pydantic import Field

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CLIENT = "client:"

_SUBJECT = "subject:"


def scopes_in(claims: Mapping[str, Any]) -> list[str]:
    """The scopes: ``scope`` (RFC 8693, section 4.2) or ``scp``, as text or as a list."""
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def bearer_of(claims: Mapping[str, Any], subjects: Iterable[str] = ("sub",)) -> tuple[str, str | None]:
    """The client that the token was given to, and whom it acts for; without the latter it is the client's own.

    Args:
        claims: What the token says.
        subjects: The claims that tell whom it acts for, of which the first that is there counts.

    Raises:
        TokenRefusedError: The claims tell neither.
    """
    subject = next(filter(None, (_text(claims, name) for name in subjects)), None)
    client = _text(claims, "client_id") or _text(claims, "azp") or subject
    if client is None:
        raise TokenRefusedError("the token does not say whose it is: it has neither sub nor client_id")
    return client, subject


def audiences_of(audience: str) -> tuple[str, ...]:
    """An audience in the forms that mean the same: a URL with a slash at its end, and without."""
    bare = audience.rstrip("/")
    return (bare, bare + "/") if audience.startswith(("http://", "https://")) else (audience,)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    found = claims.get(name)
    return found if isinstance(found, str) and found else None


def name_of(token: AccessToken, *, names_issuer: bool) -> str:
    """What the bearer of a credential is called.

    Args:
        token: The credential, verified.
        names_issuer: Whether the issuer is part of the name: where there may be several.
    """
    if isinstance(token, VerifiedToken) and token.is_key:
        return token.client_id
    issuer = issuer_in(token) if names_issuer else None
    name = _name_at_issuer(token)
    return name if issuer is None else f"{name}@{issuer}"


def issuer_in(token: AccessToken) -> str | None:
    """Who issued a token, where it says so."""
    found = (token.claims or {}).get("iss")
    return found if isinstance(found, str) and found else None


def _name_at_issuer(token: AccessToken) -> str:
    subject = token.subject
    if not subject:
        return _CLIENT + token.client_id  # some subject of the same issuer may be called as the client is
    return _SUBJECT + subject if subject.startswith((_CLIENT, _SUBJECT)) else subject


class TokenRefusedError(BridgeError):
    """A token is known to be bad. The message is fit for its bearer, and shows nothing of the token."""


class TokenExpiredError(TokenRefusedError):
    """A token was good, as its issuer's signature or word says, and has expired: whoever sends it makes no guess."""


class IssuerUnavailableError(BridgeError):
    """Nobody can tell whether a token is good, because what issued it cannot be asked.

    Attributes:
        retry_after_seconds: When asking again may help.
    """

    def __init__(self, message: str, retry_after_seconds: float = 10.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class VerifiedToken(AccessToken):
    """What a verifier of this package makes of a good credential: the SDK's AccessToken, and what its bearer may do.

    Neither its ``repr`` nor anything that logs it shows the credential.
    """

    token: str = Field(repr=False)
    claims: dict[str, Any] | None = Field(default=None, repr=False)
    tools: tuple[str, ...] | None = None
    """Names and patterns of the tools that the bearer may know of; None for all."""
    has_all_scopes: bool = False
    """Whether the bearer has every scope that the server knows, beside `scopes`."""
    keep_seconds: float = 0.0
    """How long the verdict may be kept without asking the verifier again."""
    is_key: bool = False
    """Whether it is a key, whose bearer is called as its operator said, and not as an issuer did."""

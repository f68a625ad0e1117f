"""What the claims of a token say, however its issuer writes them: for signed tokens as for introspected ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.server.auth.refusals import TokenRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def scopes_in(claims: Mapping[str, Any]) -> list[str]:
    """The scopes: ``scope`` (RFC 8693, section 4.2) or ``scp``, as text or as a list."""
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def bearer_in(claims: Mapping[str, Any], subjects: Iterable[str] = ("sub",)) -> tuple[str, str | None]:
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

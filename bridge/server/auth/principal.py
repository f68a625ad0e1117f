"""Principals: what the bearers of credentials are called, so that no two of them are called the same.

    key            its name
    token          its subject, else client:ID                 42          client:app
    … of several   the same, and the issuer                    42@https://login.example.org

Tools, memories, limits and audits go by the name. A subject that is written as a client is, is ``subject:client:app``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.server.auth.token import VerifiedToken

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

_CLIENT = "client:"
_SUBJECT = "subject:"


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

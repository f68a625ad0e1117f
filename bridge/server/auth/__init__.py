"""Authentication over HTTP: API keys, tokens of an identity provider, scopes.

    http_app(tools, auth=Auth(ApiKeys(ApiKey("ci", key, tools=("search_*",))), JwtVerifier(issuer, audience)))

BearerAuthGuard ── Auth ── ApiKeys, KeyFile, JwtVerifier, Introspection, any `TokenVerifier`
  ╰── Access: the tools that are visible to a caller, and the scopes that it was granted
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.server.auth.auth import Auth
    from bridge.server.auth.introspection import Introspection
    from bridge.server.auth.jwt import JwtVerifier
    from bridge.server.auth.keys import ApiKey, ApiKeys, KeyFile
    from bridge.server.auth.tokens import IssuerUnavailableError, TokenExpiredError, TokenRefusedError, VerifiedToken

__all__ = [
    "ApiKey", "ApiKeys", "Auth", "Introspection", "IssuerUnavailableError", "JwtVerifier", "KeyFile",
    "TokenExpiredError", "TokenRefusedError", "VerifiedToken",
]  # fmt: skip
_NAMES = {
    "auth": "Auth",
    "introspection": "Introspection",
    "jwt": "JwtVerifier",
    "keys": "ApiKey ApiKeys KeyFile",
    "tokens": "IssuerUnavailableError TokenExpiredError TokenRefusedError VerifiedToken",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import names on first use, since a server over stdio needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

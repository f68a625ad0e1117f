"""Authentication over HTTP: API keys, tokens of an identity provider, scopes.

    http_app(tools, auth=Auth(ApiKeys(ApiKey("ci", key, tools=("search_*",))), JwtVerifier(issuer, audience)))

BearerAuthGuard ── Auth ── ApiKeys, KeyFile, JwtVerifier, Introspection, any `TokenVerifier`
  ╰── Access: the tools that are visible to a caller, and the scopes that it was granted
"""

from __future__ import annotations

from bridge.exports import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports(__name__)

"""Fitness: whether an authorization server may be told anything, and a person be sent there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth.utils import issuers_match

from bridge.client.auth.errors import SignInError
from bridge.client.auth.token_binding import object_in
from bridge.client.redaction import redact_url

if TYPE_CHECKING:
    from mcp.client.auth.oauth2 import OAuthContext
    from mcp.shared.auth import OAuthMetadata

    from bridge.client.auth.grants import OAuthLogin
    from bridge.client.auth.server_validation import Reach


def require_fit(context: OAuthContext, grant: OAuthLogin, reach: Reach) -> None:
    """Refuse an authorization server before it is told anything, and before anybody is asked.

    Only a server of 2025-03-26 is its own authorization server without saying so. The SDK's client takes a server for
    one, too, whose authorization server is away, and would show it what only that may see.

    Args:
        context: What is known of both.
        grant: As whom somebody is to log in.
        reach: Where the login may lead.

    Raises:
        SignInError: It is not the one that is meant, says too little of itself, or leads astray.
    """
    metadata = context.oauth_metadata
    named = str(metadata.issuer) if metadata is not None else context.auth_server_url
    asked = named or context.get_authorization_base_url(context.server_url)
    if grant.issuer is not None and not issuers_match(asked, grant.issuer):
        raise SignInError(
            f"it leads the login to {redact_url(asked).shown!r}, and not to the issuer"
            f" {redact_url(grant.issuer).shown!r} that is named for it"
        )
    if metadata is not None:
        _require_pkce(metadata)
        for endpoint in (metadata.registration_endpoint, metadata.authorization_endpoint, metadata.token_endpoint):
            if endpoint is not None:
                reach.check(endpoint)
    elif named is not None:
        told = f"its authorization server {redact_url(named).shown!r} does not say how to log in (RFC 8414)"
        raise SignInError(told, is_permanent=False)


def preferring(issuer: str | None, answer: httpx2.Response) -> httpx2.Response:
    """What a server says of itself, with the named one of its authorization servers first (RFC 9728, 7.6).

    The SDK's client goes to the first.

    Args:
        issuer: The one that is named; None for none.
        answer: Whatever was answered.
    """
    if issuer is None or not answer.is_success:
        return answer
    said = object_in(answer)
    servers = said.get("authorization_servers")
    if not (isinstance(servers, list) and all(isinstance(server, str) for server in servers)):
        return answer
    ordered = sorted(servers, key=lambda server: not issuers_match(server, issuer))
    return httpx2.Response(answer.status_code, json=said | {"authorization_servers": ordered}, request=answer.request)


def _require_pkce(metadata: OAuthMetadata) -> None:
    """Refuse who does not say that a stolen code is no good without its verifier (MCP, Authorization Code Protection).

    A server of 2025-03-26 without any metadata has no place to say it: it never comes here, and is sent the challenge.
    """
    if "S256" in (metadata.code_challenge_methods_supported or ()):
        return
    raise SignInError(
        f"its authorization server {redact_url(str(metadata.issuer)).shown!r} does not say that it supports PKCE:"
        " 'code_challenge_methods_supported' of its metadata has to name 'S256'"
    )

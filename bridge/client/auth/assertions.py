"""JWT bearer grant and token exchange (RFC 7523 section 2.1, RFC 8693).

The SDK's client for assertions requires a client secret; this one supports public clients (Workload Identity
Federation) and reuses the SDK's public functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthTokenError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    create_oauth_metadata_request,
    handle_auth_metadata_response,
    handle_token_response_scopes,
    union_scopes,
    validate_metadata_issuer,
)
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.auth.server_validation import AllowedAddresses
from bridge.client.transports.limits import authority_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.shared.auth import OAuthMetadata, OAuthToken

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.grants import AssertionSource, IdentityAssertion
    from bridge.client.auth.token_binding import TokenBinding

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a kind of token
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


async def tokens_for_assertion(
    url: str, grant: IdentityAssertion, challenge: Challenge, http: httpx2.AsyncClient, binding: TokenBinding
) -> OAuthToken:
    """Request tokens for an assertion from an authorization server.

    Raises:
        SignInError: The authorization server's address is not allowed.
        OAuthFlowError: There is no such authorization server, or it refuses.
        HTTPError: The authorization server cannot be reached.
    """
    reach = AllowedAddresses(url, grant.issuer)
    metadata = await _metadata_of(grant.issuer, reach, http, binding)
    reach.check(metadata.token_endpoint)
    resource = resource_url_from_server_url(url)
    fields = {
        "grant_type": JWT_BEARER_GRANT_TYPE,
        "assertion": await grant.assertion(grant.issuer, resource),
        "client_id": grant.client_id,
        "resource": resource,
    }
    if scope := union_scopes(" ".join(grant.scopes), challenge.scope if challenge.is_step_up else None):
        fields["scope"] = scope
    answer = await binding.send(http.build_request("POST", str(metadata.token_endpoint), data=fields), http)
    if answer.status_code != httpx2.codes.OK:
        raise OAuthTokenError(f"Token exchange failed ({answer.status_code}): {answer.text}")
    return await handle_token_response_scopes(answer)


async def _metadata_of(
    issuer: str, reach: AllowedAddresses, http: httpx2.AsyncClient, binding: TokenBinding
) -> OAuthMetadata:
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
        reach.check(url)
        answer = await binding.send(create_oauth_metadata_request(url), http)
        may_continue, metadata = await handle_auth_metadata_response(answer)
        if metadata is not None:
            validate_metadata_issuer(metadata, issuer)
            return metadata
        if not may_continue:
            break
    raise OAuthFlowError(f"No authorization server metadata at configured issuer {issuer}")


class _Exchanged(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    access_token: str
    issued_token_type: str


def exchange_assertion(
    token_endpoint: str,
    *,
    client_id: str,
    id_token: Callable[[], Awaitable[str]],
    client_secret: str | None = None,
) -> AssertionSource:
    """Create a source of assertions that an identity provider issues for a user's ID token (RFC 8693).

    Args:
        token_endpoint: The identity provider's token endpoint.
        client_id: The client ID of this program at the identity provider.
        id_token: Returns the user's ID token.
        client_secret: The client secret at the identity provider; None for a public client.

    Returns:
        A source for `bridge.client.auth.grants.IdentityAssertion`. It raises `SignInError` if the identity provider
        refuses.
    """

    async def source(issuer: str, resource: str) -> str:
        fields = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": issuer,
            "resource": resource,
            "subject_token": await id_token(),
            "subject_token_type": _ID_TOKEN,
            "client_id": client_id,
        }
        if client_secret is not None:
            fields["client_secret"] = client_secret
        async with authority_client() as http:
            answer = await http.post(token_endpoint, data=fields)
        if not answer.is_success:
            raise SignInError(f"the identity provider refused to issue an assertion (HTTP {answer.status_code})")
        try:
            found = _Exchanged.model_validate_json(answer.content)
        except ValidationError:
            raise SignInError("the identity provider's response is not a token response (RFC 8693)") from None
        if found.issued_token_type != _ID_JAG:
            kind = found.issued_token_type
            raise SignInError(f"the identity provider issued a {kind!r} instead of an identity assertion")
        return found.access_token

    return source

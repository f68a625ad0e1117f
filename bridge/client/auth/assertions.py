"""JWT bearer: tokens for an assertion, by a client without a secret (RFC 7523, 2.1; Workload Identity Federation).

The SDK's client for assertions always shows a secret; the rest of what it does is its public functions, used here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

from bridge.client.auth.server_validation import Reach

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthMetadata, OAuthToken

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.grants import IdentityAssertion
    from bridge.client.auth.token_binding import Binding


async def tokens_for_assertion(
    url: str, grant: IdentityAssertion, challenge: Challenge, http: httpx2.AsyncClient, binding: Binding
) -> OAuthToken:
    """The tokens that an authorization server gives for an assertion.

    Args:
        url: The server.
        grant: Whose assertion, and for which authorization server.
        challenge: What the server asks for.
        http: Sends what has to be asked.
        binding: Whether the tokens are bound to a key.

    Raises:
        SignInError: Nobody should go where it would have to be asked.
        OAuthFlowError: There is no such authorization server, or it refuses.
        HTTPError: It cannot be reached.
    """
    reach = Reach(url, grant.issuer)
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


async def _metadata_of(issuer: str, reach: Reach, http: httpx2.AsyncClient, binding: Binding) -> OAuthMetadata:
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
        reach.check(url)
        answer = await binding.send(create_oauth_metadata_request(url), http)
        goes_on, metadata = await handle_auth_metadata_response(answer)
        if metadata is not None:
            validate_metadata_issuer(metadata, issuer)
            return metadata
        if not goes_on:
            break
    raise OAuthFlowError(f"No authorization server metadata at configured issuer {issuer}")

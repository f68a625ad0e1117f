"""JWT bearer grant and token exchange (RFC 7523, 8693).

JWT bearer: tokens for an assertion, by a client without a secret (RFC 7523, 2.1; Workload Identity Federation).

The SDK's client for assertions always shows a secret; the rest of what it does is its public functions, used here.

Assertion: what an enterprise's identity provider says of a person, for another authorization server (RFC 8693).
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

_SECONDS = 10.0


async def tokens_for_assertion(
    url: str, grant: IdentityAssertion, challenge: Challenge, http: httpx2.AsyncClient, binding: TokenBinding
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
        goes_on, metadata = await handle_auth_metadata_response(answer)
        if metadata is not None:
            validate_metadata_issuer(metadata, issuer)
            return metadata
        if not goes_on:
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
    """Assertions that an identity provider gives for the ID token of whoever is logged in there.

    Args:
        token_endpoint: The identity provider's.
        client_id: This program, as the identity provider knows it.
        id_token: Gives the person's ID token.
        client_secret: What the identity provider knows this program by; None for nothing.

    Returns:
        For `bridge.client.auth.grants.IdentityAssertion`. It raises `SignInError` where the identity provider refuses.
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
        async with authority_client(_SECONDS) as http:
            answer = await http.post(token_endpoint, data=fields)
        if not answer.is_success:
            raise SignInError(f"the identity provider gives no assertion (HTTP {answer.status_code})")
        try:
            found = _Exchanged.model_validate_json(answer.content)
        except ValidationError:
            raise SignInError("the identity provider's answer is no token (RFC 8693)") from None
        if found.issued_token_type != _ID_JAG:
            raise SignInError(f"the identity provider gave a {found.issued_token_type!r}, and no identity assertion")
        return found.access_token

    return source

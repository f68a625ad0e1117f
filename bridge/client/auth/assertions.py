"""JWT bearer grant and token exchange (RFC 7523 section 2.1, RFC 8693).

The SDK's client for assertions requires a client secret; this one supports public clients (Workload Identity
Federation) and reuses the SDK's public functions.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import httpx2
from mcp.client.auth import OAuthFlowError, OAuthTokenError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_token_response_scopes,
    union_scopes,
    validate_metadata_issuer,
)
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthToken
from mcp.shared.auth_utils import resource_url_from_server_url
from pydantic import BaseModel, ConfigDict, ValidationError

from bridge.client.auth.errors import SignInError
from bridge.client.auth.server_validation import AllowedAddresses
from bridge.client.auth.token_binding import object_in
from bridge.client.transports.received_data import authority_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.shared.auth import OAuthMetadata

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.grants import AssertionSource, IdentityAssertion, SubjectTokenType, TokenExchange
    from bridge.client.auth.token_binding import TokenBinding

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:"  # noqa: S105 - a kind of token
_ID_JAG: Final = _TOKEN_TYPE + "id-jag"
_ACCESS_TOKEN: Final = _TOKEN_TYPE + "access_token"
_JWT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MAX_CODE_CHARS = 60
_SERVER_ERROR = 500


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


async def issuer_of(url: str) -> str:
    """Return the first authorization server that a server's metadata names (RFC 9728).

    Raises:
        SignInError: It names none.
        HTTPError: The server cannot be reached.
    """
    reach = AllowedAddresses(url)
    async with authority_client() as http:
        for address in build_protected_resource_metadata_discovery_urls(None, url):
            metadata = await handle_protected_resource_response(await http.get(address))
            if metadata is not None and metadata.authorization_servers:
                reach.check(issuer := str(metadata.authorization_servers[0]))
                return issuer
    raise SignInError("it names no authorization server: give its 'issuer' in the configuration")


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
    subject_token_type: SubjectTokenType = "id_token",  # noqa: S107 - a kind of token
) -> AssertionSource:
    """Create a source of assertions that an identity provider issues for a user's token (RFC 8693).

    Args:
        token_endpoint: The identity provider's token endpoint.
        client_id: The client ID of this program at the identity provider.
        id_token: Returns the user's ID token, or another token.
        client_secret: The client secret at the identity provider; None for a public client.
        subject_token_type: The kind of the user's token.

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
            "subject_token_type": _TOKEN_TYPE + subject_token_type,
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


async def exchange_token(exchange: TokenExchange, subject_token: str, scope: str | None = None) -> OAuthToken:
    """Exchange a caller's token for one for a server (RFC 8693).

    Args:
        exchange: The exchange.
        subject_token: The caller's token.
        scope: Scopes to request; None for those of the authorization server's choice.

    Raises:
        SignInError: It is refused, or the response is no token that could be sent.
        HTTPError: The authorization server cannot be reached.
    """
    fields = {
        "grant_type": _EXCHANGE,
        "requested_token_type": _ACCESS_TOKEN,
        "subject_token": subject_token,
        "subject_token_type": _TOKEN_TYPE + exchange.subject_token_type,
    }
    named = {"audience": exchange.audience, "resource": exchange.resource, "scope": scope}
    fields |= {name: value for name, value in named.items() if value is not None}
    headers = await _authenticate(exchange, fields)
    async with authority_client() as http:
        answer = await http.post(exchange.token_url, data=fields, headers=headers)
    if not answer.is_success:
        code = object_in(answer).get("error")
        shown = f"{code}, " if isinstance(code, str) and code.isprintable() and len(code) <= _MAX_CODE_CHARS else ""
        is_permanent = answer.status_code < _SERVER_ERROR and answer.status_code != httpx2.codes.TOO_MANY_REQUESTS
        reason = f"the exchange of the caller's token was refused ({shown}HTTP {answer.status_code})"
        raise SignInError(reason, is_permanent=is_permanent)
    try:
        return OAuthToken.model_validate_json(answer.content)
    except ValidationError:
        raise SignInError("the response to the exchange of the caller's token has no bearer token (RFC 8693)") from None


async def _authenticate(exchange: TokenExchange, fields: dict[str, str]) -> dict[str, str]:
    """Add the client's authentication to the fields of a token request; return its headers."""
    if exchange.private_key is not None:
        from mcp.client.auth.extensions.client_credentials import SignedJWTParameters  # noqa: PLC0415 - slow to import

        signing = SignedJWTParameters(
            issuer=exchange.client_id,
            subject=exchange.client_id,
            signing_key=exchange.private_key,
            signing_algorithm=exchange.signing_algorithm,
        )
        check_key(exchange.private_key, exchange.signing_algorithm)
        assertion = await signing.create_assertion_provider()(exchange.token_url)
        fields |= {"client_assertion_type": _JWT_ASSERTION, "client_assertion": assertion}
    elif exchange.client_secret is not None and exchange.client_authentication == "client_secret_basic":
        pair = f"{quote(exchange.client_id, safe='')}:{quote(exchange.client_secret, safe='')}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    else:
        fields["client_id"] = exchange.client_id
        if exchange.client_secret is not None:
            fields["client_secret"] = exchange.client_secret
    return {}


def check_key(pem: str, algorithm: str) -> None:
    """Check a signing key.

    Raises:
        SignInError: It is unreadable, unfit for the algorithm, or too short (RFC 7518 section 3.3).
    """
    from jwt import PyJWTError, get_algorithm_by_name  # noqa: PLC0415 - slow to import

    try:
        signing = get_algorithm_by_name(algorithm)
        weakness = signing.check_key_length(signing.prepare_key(pem))
    except (NotImplementedError, PyJWTError, ValueError, TypeError, AttributeError):
        raise SignInError(f"the client's private key cannot be read, or does not fit {algorithm!r}") from None
    if weakness is not None:
        raise SignInError(f"the client's private key is too short: {weakness}")

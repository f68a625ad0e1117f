"""One renewal of a login with the SDK's OAuth clients.

The SDK's clients are `httpx2.Auth` objects that lose most of their state when the process ends. Here each instance
lives for one renewal: it gets the known state, its own requests are sent, and it is closed when it would send the
original request.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.client.auth.utils import union_scopes, validate_authorization_response_iss
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from bridge.client.auth.assertions import check_key, exchange_token, tokens_for_assertion
from bridge.client.auth.challenge import no_authorization_server
from bridge.client.auth.errors import SignInError, SpentAssertionError, UnboundTokenError
from bridge.client.auth.grants import ClientCredentials, ExchangedToken, IdentityAssertion, OAuthLogin
from bridge.client.auth.login import SdkTokenStorage
from bridge.client.auth.server_validation import AllowedAddresses, prefer_authorization_server, require_usable_server
from bridge.client.auth.token_binding import TokenBinding

if TYPE_CHECKING:
    from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
    from mcp.client.auth.oauth2 import OAuthContext

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.dpop import Nonces
    from bridge.client.auth.grants import Grant
    from bridge.client.auth.login import Login
    from bridge.client.auth.loopback import RedirectListener

_Provider: TypeAlias = "OAuthClientProvider | IdentityAssertionOAuthProvider"

_logger = logging.getLogger("bridge.client")
_LONG_AGO = 1.0
"""Expiry time in the past; 0 would mean an unknown expiry."""
_UNUSED_REDIRECT = "http://127.0.0.1/callback"
_is_driving: ContextVar[bool] = ContextVar("bridge.client.auth.flow.is_driving", default=False)


class _SdkErrorFilter(logging.Filter):
    """Suppresses the SDK's log of errors, which contains the response body and is raised here anyway."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - required by logging.Filter
        return not _is_driving.get()


logging.getLogger("mcp.client.auth.oauth2").addFilter(_SdkErrorFilter())


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Inputs of one renewal."""

    url: str
    """The MCP server."""
    request: httpx2.Request
    """The request to sign."""
    http: httpx2.AsyncClient
    """HTTP client for the renewal's requests."""
    nonces: Nonces
    """DPoP nonces of authorization servers."""


async def refresh(renewal: Renewal, login: Login, grant: Grant) -> Login:
    """Refresh a login with a refresh token; returns it without tokens if the authorization server refuses.

    Raises:
        SignInError: The authorization server fails temporarily, or its address is not allowed.
    """
    draft = SdkTokenStorage(login.client, login.tokens)
    provider = OAuthClientProvider(renewal.url, _metadata(OAuthLogin(), _UNUSED_REDIRECT), draft)
    _remember(provider, login)
    provider.context.token_expiry_time = _LONG_AGO
    try:
        answer = await drive(renewal, provider, grant, None, TokenBinding(login, renewal.nonces))
    except UnboundTokenError as error:
        _logger.warning("the login to %s has ended: %s", login.server_url, error)
        return login.renewed(None)
    if draft.has_new_tokens:
        return login.renewed(draft.tokens)
    status = answer.status_code if answer is not None else 0
    if status < httpx2.codes.BAD_REQUEST or status == httpx2.codes.TOO_MANY_REQUESTS or status >= 500:  # noqa: PLR2004
        raise SignInError(f"its authorization server did not renew the login (HTTP {status})", is_permanent=False)
    return login.renewed(None)


async def authorize(
    renewal: Renewal, login: Login, grant: OAuthLogin, challenge: Challenge, loopback: RedirectListener
) -> Login:
    """Log in with a browser, from the known state of an earlier login.

    Raises:
        SignInError: The authorization server is not allowed.
        OAuthFlowError: The login failed.
        HTTPError: A server cannot be reached.
    """
    draft = SdkTokenStorage(known_client(login, grant, loopback.redirect_uri), login.tokens)
    reach = AllowedAddresses(renewal.url, grant.issuer)
    binding = TokenBinding(login, renewal.nonces, challenge)

    async def show(page: str) -> None:
        require_usable_server(context, grant, reach)
        reach.check(page)
        # The endpoint may have a query (RFC 6749 section 3.1); the SDK appends a second "?".
        endpoint, mark, query = page.rpartition("?")
        page = f"{endpoint}{'&' if '?' in endpoint else mark}{query}"
        check_issuer = partial(validate_authorization_response_iss, oauth_metadata=context.oauth_metadata)
        await loopback.show(binding.page(page), check_issuer)

    provider = OAuthClientProvider(
        renewal.url,
        _metadata(grant, loopback.redirect_uri),
        draft,
        redirect_handler=show,
        callback_handler=loopback.answer,
        client_metadata_url=grant.client_metadata_url,
    )
    context = provider.context
    if challenge.is_step_up:
        _remember(provider, login)
    try:
        await drive(renewal, provider, grant, challenge, binding)
    except OAuthRegistrationError as error:
        if context.oauth_metadata is None and context.protected_resource_metadata is None:
            raise SignInError(no_authorization_server(challenge)) from error
        raise
    found = {
        "client": draft.client if grant.client_id is None else context.client_info,
        "metadata": context.oauth_metadata,
        "resource": context.protected_resource_metadata,
        "wanted_scope": None,
    }
    return binding.kept(login).model_copy(update=found).renewed(draft.tokens)


async def request_grant(
    renewal: Renewal, login: Login, grant: ClientCredentials | IdentityAssertion | ExchangedToken, challenge: Challenge
) -> Login:
    """Log in without a user; see `authorize`."""
    try:
        return await _granted(renewal, login, grant, challenge)
    except SpentAssertionError:
        return await _granted(renewal, login, grant, challenge)


async def _granted(
    renewal: Renewal, login: Login, grant: ClientCredentials | IdentityAssertion | ExchangedToken, challenge: Challenge
) -> Login:
    if isinstance(grant, ExchangedToken):
        scope = union_scopes(" ".join(grant.scopes) or None, challenge.scope if challenge.is_step_up else None)
        return login.renewed(await exchange_token(grant.exchange, await grant.subject_token(), scope))
    binding = TokenBinding(login, renewal.nonces, challenge)
    if isinstance(grant, IdentityAssertion) and grant.client_secret is None:
        tokens = await tokens_for_assertion(renewal.url, grant, challenge, renewal.http, binding)
        return binding.kept(login).renewed(tokens)
    draft = SdkTokenStorage(None, None)
    provider = _provider(renewal.url, grant, draft)
    await drive(renewal, provider, grant, challenge, binding)
    return binding.kept(login).renewed(draft.tokens)


def _provider(url: str, grant: ClientCredentials | IdentityAssertion, draft: SdkTokenStorage) -> _Provider:
    from mcp.client.auth.extensions import client_credentials, identity_assertion  # noqa: PLC0415 - slow to import

    scope = " ".join(grant.scopes) or None
    if isinstance(grant, IdentityAssertion):
        return identity_assertion.IdentityAssertionOAuthProvider(
            url,
            draft,
            grant.client_id,
            grant.client_secret or "",
            grant.issuer,
            grant.assertion,
            scope=scope,
            token_endpoint_auth_method=grant.client_authentication,
        )
    if grant.private_key is not None:
        check_key(grant.private_key, grant.signing_algorithm)
        source = client_credentials.SignedJWTParameters(
            issuer=grant.client_id,
            subject=grant.client_id,
            signing_key=grant.private_key,
            signing_algorithm=grant.signing_algorithm,
        ).create_assertion_provider()
        return client_credentials.PrivateKeyJWTOAuthProvider(
            url, draft, grant.client_id, source, scope=scope, issuer=grant.issuer
        )
    return client_credentials.ClientCredentialsOAuthProvider(
        url,
        draft,
        grant.client_id,
        grant.client_secret or "",
        token_endpoint_auth_method=grant.client_authentication,
        scope=scope,
        issuer=grant.issuer,
    )


async def drive(
    renewal: Renewal, provider: _Provider, grant: Grant, challenge: Challenge | None, binding: TokenBinding
) -> httpx2.Response | None:
    """Run the SDK's client until it would send the original request; returns the last response.

    Without a challenge, the client refreshes the tokens. Its errors are raised, so its logging is suppressed.
    """
    request, reach = renewal.request, AllowedAddresses(renewal.url, grant.issuer)
    login = grant if challenge is not None and isinstance(grant, OAuthLogin) else None
    context = provider.context if isinstance(provider, OAuthClientProvider) else None
    answer: httpx2.Response | None = None
    token = _is_driving.set(True)
    try:
        async with aclosing(provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            if challenge is not None:
                assert outgoing is request, "no token was given that could be refreshed"
                outgoing = await flow.asend(challenge.response(request, grant.scopes))
            while outgoing is not request:
                has_secrets = outgoing.method == "POST"  # metadata requests carry none
                if has_secrets and login is not None and context is not None:
                    require_usable_server(context, login, reach)
                reach.check(outgoing.url)
                answer = await binding.send(outgoing, renewal.http)
                if login is not None and context is not None:
                    _fit_authentication(context, login, answer)
                outgoing = await flow.asend(prefer_authorization_server(grant.issuer, answer))
    finally:
        _is_driving.reset(token)
    return answer


def _remember(provider: OAuthClientProvider, login: Login) -> None:
    """Restore metadata that the SDK's client discovers but does not store."""
    context = provider.context
    context.oauth_metadata = login.metadata
    context.protected_resource_metadata = login.resource
    if login.resource is not None:
        context.auth_server_url = str(login.resource.authorization_servers[0])


def _metadata(grant: OAuthLogin, redirect_uri: str) -> OAuthClientMetadata:
    scope = " ".join(grant.scopes) or None
    return OAuthClientMetadata(client_name="bridge", redirect_uris=[AnyUrl(redirect_uri)], scope=scope)


def known_client(login: Login, grant: OAuthLogin, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Return the client to log in as; None to register one."""
    if grant.client_id is not None:
        authentication = grant.client_authentication or "client_secret_basic"
        return OAuthClientInformationFull(
            client_id=grant.client_id,
            client_secret=grant.client_secret,
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method=authentication if grant.client_secret else "none",
            issuer=grant.issuer,
        )
    known = login.client
    if known is None or AnyUrl(redirect_uri) not in (known.redirect_uris or ()):
        return None  # registered with another redirect URI
    return known


def _fit_authentication(context: OAuthContext, grant: OAuthLogin, answer: httpx2.Response) -> None:
    """Choose the authentication method of a pre-registered client from the authorization server's metadata."""
    if grant.client_secret is None or grant.client_authentication is not None or not answer.is_success:
        return
    supported = context.oauth_metadata and context.oauth_metadata.token_endpoint_auth_methods_supported
    if supported and context.client_info is not None and context.client_info.client_id == grant.client_id:
        method = "client_secret_basic" if "client_secret_basic" in supported else "client_secret_post"
        context.client_info = context.client_info.model_copy(update={"token_endpoint_auth_method": method})

"""Flow: one renewal of a login, by one of the SDK's OAuth clients.

The SDK's clients are `httpx2.Auth` objects that sign requests one at a time, and forget much when the process ends.
Here each lives for one renewal: it is given what is known, its own requests are sent, and it is left when it would
send the request that it was asked to sign.
"""

from __future__ import annotations

import logging
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.client.auth.utils import validate_authorization_response_iss
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from bridge.client.auth.assertions import tokens_for_assertion
from bridge.client.auth.challenge import no_authorization_server
from bridge.client.auth.errors import SignInError, SpentAssertionError, UnboundTokenError
from bridge.client.auth.grants import ClientCredentials, IdentityAssertion, OAuthLogin
from bridge.client.auth.login import SdkTokenStorage
from bridge.client.auth.server_validation import AllowedAddresses, prefer_authorization_server, require_usable_server
from bridge.client.auth.token_binding import TokenBinding

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

    from bridge.client.auth.challenge import Challenge
    from bridge.client.auth.dpop import Nonces
    from bridge.client.auth.grants import Grant
    from bridge.client.auth.login import Login
    from bridge.client.auth.loopback import RedirectListener

_Provider: TypeAlias = "OAuthClientProvider | IdentityAssertionOAuthProvider"

_logger = logging.getLogger("bridge.client")

_LONG_AGO = 1.0
"""A time at which no token is good any more; 0 would mean that nobody knows."""
_UNUSED_REDIRECT = "http://127.0.0.1/callback"


_is_told: ContextVar[bool] = ContextVar("bridge.client.auth.flow.is_told", default=False)


class _Untold(logging.Filter):
    """Keeps the SDK from logging, with all that an authorization server said, what is raised and told here."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - whatever it is
        return not _is_told.get()


logging.getLogger("mcp.client.auth.oauth2").addFilter(_Untold())


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a login is renewed for, and what others are asked with."""

    url: str
    """The server."""
    request: httpx2.Request
    """What is to be signed."""
    http: httpx2.AsyncClient
    """Sends what has to be asked."""
    nonces: Nonces
    """What authorization servers want to find in proofs (RFC 9449)."""


async def refresh(renewal: Renewal, login: Login, grant: Grant) -> Login:
    """A login with fresh tokens; without any where the authorization server refuses to renew them.

    Args:
        renewal: For what, and how.
        login: The login, which can be refreshed.
        grant: How it came to be.

    Raises:
        SignInError: The authorization server does not answer, and another time it may; or nobody should go there.
    """
    draft = SdkTokenStorage(login.client, login.tokens)
    provider = OAuthClientProvider(renewal.url, _metadata(OAuthLogin(), _UNUSED_REDIRECT), draft)
    _remember(provider, login)
    provider.context.token_expiry_time = _LONG_AGO
    answer: httpx2.Response | None = None
    binding = TokenBinding(login, renewal.nonces)
    async with _flow(provider, renewal.request) as flow:
        outgoing = await anext(flow)
        while outgoing is not renewal.request:
            try:
                answer = await _sent(outgoing, renewal.http, AllowedAddresses(renewal.url, grant.issuer), binding)
            except UnboundTokenError as error:
                _logger.warning("the login to %s has ended: %s", login.server_url, error)
                return login.renewed(None)
            outgoing = await flow.asend(answer)
    if draft.has_new_tokens:
        return login.renewed(draft.tokens)
    status = answer.status_code if answer is not None else 0
    if status < httpx2.codes.BAD_REQUEST or status == httpx2.codes.TOO_MANY_REQUESTS or status >= 500:  # noqa: PLR2004
        raise SignInError(f"its authorization server does not renew the login (HTTP {status})", is_permanent=False)
    return login.renewed(None)


async def authorize(
    renewal: Renewal, login: Login, grant: OAuthLogin, challenge: Challenge, loopback: RedirectListener
) -> Login:
    """A login that a person has agreed to.

    Args:
        renewal: For what, and how.
        login: What is known so far.
        grant: As whom, and for what, to log in.
        challenge: What the server asks for.
        loopback: Where the person is asked, and the answer comes.

    Raises:
        SignInError: The authorization server is not one that may be logged in to.
        OAuthFlowError: It failed.
        HTTPError: A server cannot be reached.
    """
    draft = SdkTokenStorage(_client(login, grant, loopback.redirect_uri), login.tokens)
    reach = AllowedAddresses(renewal.url, grant.issuer)
    binding = TokenBinding(login, renewal.nonces, challenge)

    async def show(page: str) -> None:
        require_usable_server(context, grant, reach)
        reach.check(page)
        # The endpoint may have a query of its own (RFC 6749, 3.1), behind which the SDK's client begins another.
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
        await _drive(renewal, provider, grant, challenge, binding)
    except OAuthRegistrationError as error:
        if context.oauth_metadata is None and context.protected_resource_metadata is None:
            raise SignInError(no_authorization_server(challenge)) from error
        raise
    return (
        binding.kept(login)
        .model_copy(
            update={
                "client": draft.client if grant.client_id is None else context.client_info,
                "metadata": context.oauth_metadata,
                "resource": context.protected_resource_metadata,
                "wanted_scope": None,
            }
        )
        .renewed(draft.tokens)
    )


async def request_grant(
    renewal: Renewal, login: Login, grant: ClientCredentials | IdentityAssertion, challenge: Challenge
) -> Login:
    """A login that needs no person; see `authorize`."""
    try:
        return await _granted(renewal, login, grant, challenge)
    except SpentAssertionError:
        return await _granted(renewal, login, grant, challenge)


async def _granted(
    renewal: Renewal, login: Login, grant: ClientCredentials | IdentityAssertion, challenge: Challenge
) -> Login:
    binding = TokenBinding(login, renewal.nonces, challenge)
    if isinstance(grant, IdentityAssertion) and grant.client_secret is None:
        tokens = await tokens_for_assertion(renewal.url, grant, challenge, renewal.http, binding)
        return binding.kept(login).renewed(tokens)
    draft = SdkTokenStorage(None, None)
    provider = _provider(renewal.url, grant, draft, " ".join(grant.scopes) or None)
    await _drive(renewal, provider, grant, challenge, binding)
    return binding.kept(login).renewed(draft.tokens)


def _provider(
    url: str, grant: ClientCredentials | IdentityAssertion, draft: SdkTokenStorage, scope: str | None
) -> _Provider:
    if isinstance(grant, IdentityAssertion):
        return _assertion_provider(url, grant, draft, scope)
    from mcp.client.auth.extensions.client_credentials import (  # noqa: PLC0415 - slow to load: it signs
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )

    if grant.private_key is not None:
        _check_key(grant.private_key, grant.signing_algorithm)
        signed = SignedJWTParameters(
            issuer=grant.client_id,
            subject=grant.client_id,
            signing_key=grant.private_key,
            signing_algorithm=grant.signing_algorithm,
        )
        source = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(url, draft, grant.client_id, source, scope=scope, issuer=grant.issuer)
    return ClientCredentialsOAuthProvider(
        url,
        draft,
        grant.client_id,
        grant.client_secret or "",
        token_endpoint_auth_method=grant.client_authentication,
        scope=scope,
        issuer=grant.issuer,
    )


def _check_key(pem: str, algorithm: str) -> None:
    """Check the key that signs a client's assertions.

    Raises:
        SignInError: It cannot be read, is not of the algorithm, or is too short (RFC 7518, 3.3).
    """
    from jwt import PyJWTError, get_algorithm_by_name  # noqa: PLC0415 - as above

    try:
        signing = get_algorithm_by_name(algorithm)
        weakness = signing.check_key_length(signing.prepare_key(pem))
    except (NotImplementedError, PyJWTError, ValueError, TypeError, AttributeError):
        raise SignInError(f"the private key of this client is none for {algorithm!r}, or cannot be read") from None
    if weakness is not None:
        raise SignInError(f"the private key of this client is too short: {weakness}")


def _assertion_provider(url: str, grant: IdentityAssertion, draft: SdkTokenStorage, scope: str | None) -> _Provider:
    from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider  # noqa: PLC0415 - as above

    return IdentityAssertionOAuthProvider(
        url,
        draft,
        grant.client_id,
        grant.client_secret or "",
        grant.issuer,
        grant.assertion,
        scope=scope,
        token_endpoint_auth_method=grant.client_authentication,
    )


async def _drive(
    renewal: Renewal,
    provider: _Provider,
    grant: OAuthLogin | ClientCredentials | IdentityAssertion,
    challenge: Challenge,
    binding: TokenBinding,
) -> None:
    """Have the SDK's client meet a challenge, until it would send the request again."""
    request, reach = renewal.request, AllowedAddresses(renewal.url, grant.issuer)
    async with _flow(provider, request) as flow:
        outgoing = await anext(flow)
        assert outgoing is request, "no token was given that could be refreshed"
        outgoing = await flow.asend(challenge.response(request, grant.scopes))
        while outgoing is not request:
            is_told = outgoing.method == "POST"  # until then it is only asked what it says of itself
            if is_told and isinstance(grant, OAuthLogin) and isinstance(provider, OAuthClientProvider):
                require_usable_server(provider.context, grant, reach)
            answer = await _sent(outgoing, renewal.http, reach, binding)
            if isinstance(grant, OAuthLogin) and isinstance(provider, OAuthClientProvider):
                _fit_authentication(provider, grant, answer)
            outgoing = await flow.asend(prefer_authorization_server(grant.issuer, answer))


@asynccontextmanager
async def _flow(
    provider: _Provider, request: httpx2.Request
) -> AsyncIterator[AsyncGenerator[httpx2.Request, httpx2.Response]]:
    """The SDK's client at work, silently: whatever goes wrong is raised."""
    token = _is_told.set(True)
    try:
        async with aclosing(provider.async_auth_flow(request)) as flow:
            yield flow
    finally:
        _is_told.reset(token)


async def _sent(
    request: httpx2.Request, http: httpx2.AsyncClient, reach: AllowedAddresses, binding: TokenBinding
) -> httpx2.Response:
    reach.check(request.url)
    return await binding.send(request, http)


def _remember(provider: OAuthClientProvider, login: Login) -> None:
    """Give the SDK's client what it had found out when the tokens came, which it does not store."""
    context = provider.context
    context.oauth_metadata = login.metadata
    context.protected_resource_metadata = login.resource
    if login.resource is not None:
        context.auth_server_url = str(login.resource.authorization_servers[0])


def _metadata(grant: OAuthLogin, redirect_uri: str) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="bridge",
        redirect_uris=[AnyUrl(redirect_uri)],
        scope=" ".join(grant.scopes) or None,
    )


def _client(login: Login, grant: OAuthLogin, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The client to log in as; None to have one registered."""
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
        return None  # registered for another way back
    return known


def _fit_authentication(provider: OAuthClientProvider, grant: OAuthLogin, answer: httpx2.Response) -> None:
    """Have a client that was registered by hand show its secret as its authorization server takes it."""
    if grant.client_secret is None or grant.client_authentication is not None or not answer.is_success:
        return
    context = provider.context
    taken = context.oauth_metadata and context.oauth_metadata.token_endpoint_auth_methods_supported
    if taken and context.client_info is not None and context.client_info.client_id == grant.client_id:
        fitting = "client_secret_basic" if "client_secret_basic" in taken else "client_secret_post"
        context.client_info = context.client_info.model_copy(update={"token_endpoint_auth_method": fitting})

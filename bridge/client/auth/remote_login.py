"""Login in a browser elsewhere, whose redirect is received by another request, or another process (RFC 6749, 4.1).

    start ──> page of the authorization server ──> redirect to the program ──> finish ──> login
      ╰── StartedLogin, which the program keeps meanwhile

Discovery and registration are those of the SDK's client, up to the page.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import parse_qsl, urlencode, urljoin

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import handle_token_response_scopes, union_scopes, validate_authorization_response_iss
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl, BaseModel, ConfigDict, Field

from bridge.client.auth.challenge import QUESTION_HEADERS, Challenge, no_authorization_server, request_challenge
from bridge.client.auth.dpop import Nonces
from bridge.client.auth.errors import SignInError
from bridge.client.auth.flow import Renewal, drive, known_client
from bridge.client.auth.login import Login, SdkTokenStorage
from bridge.client.auth.server_validation import AllowedAddresses, require_usable_server
from bridge.client.auth.token_binding import TokenBinding
from bridge.client.transports.received_data import authority_client
from bridge.redaction import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.auth.grants import OAuthLogin

_MAX_ERROR_CHARS = 200
_VERIFIER_BYTES = 48


class StartedLogin(BaseModel):
    """A login whose redirect has not been received. Its repr hides secrets."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    login: Login = Field(repr=False)
    """The client, the servers' metadata, and the key that tokens will be bound to."""
    verifier: str = Field(repr=False)
    """PKCE code verifier (RFC 7636)."""
    redirect_uri: str
    """Redirect URI of the page."""
    resource: str | None = None
    """Resource indicator of the page (RFC 8707); None for none."""


class _PageShownError(Exception):
    """The SDK's client has built the address of the page, and is not needed any more."""


async def start_login(
    url: str,
    grant: OAuthLogin,
    known: Login | None,
    *,
    client_name: str,
    redirect_uri: str,
    state: str,
    scope: str | None = None,
) -> tuple[str, StartedLogin]:
    """Discover the authorization server, and register a client if none is known.

    Args:
        url: The MCP server.
        grant: The grant.
        known: An earlier login, whose client is used if it has this redirect URI; None for none.
        client_name: Name of a new client.
        redirect_uri: Redirect URI.
        state: The parameter ``state``.
        scope: Further scopes to ask for; None for none.

    Returns:
        Address of the authorization server's page, and what `finish_login` needs.

    Raises:
        SignInError: There is no usable authorization server.
    """
    if scope is not None and grant.scopes:  # which replace those that the server asks for
        grant = replace(grant, scopes=tuple(dict.fromkeys((*grant.scopes, *scope.split()))))
    verifier = secrets.token_urlsafe(_VERIFIER_BYTES)
    digest = hashlib.sha256(verifier.encode()).digest()
    ours = {
        "state": state,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    try:
        async with authority_client() as http:
            request = httpx2.Request("GET", url, headers=QUESTION_HEADERS)
            challenge = await request_challenge(http, url) or Challenge(is_unasked=True)
            challenge = replace(challenge, scope=union_scopes(challenge.scope, scope))
            renewal = Renewal(url=url, request=request, http=http, nonces=Nonces())
            login = Login(server_url=redact_url(url).shown) if known is None else known
            page, login = await _page(renewal, login, grant, challenge, client_name, redirect_uri)
    except httpx2.HTTPError as error:
        raise SignInError(f"the login failed: {type(error).__name__}", is_permanent=False) from error
    except (OAuthFlowError, ValueError) as error:
        raise SignInError(f"the login failed: {' '.join(str(error).split())[:_MAX_ERROR_CHARS]}") from error
    endpoint, _, query = page.partition("?")
    fields = dict(parse_qsl(query, keep_blank_values=True)) | ours
    started = StartedLogin(login=login, verifier=verifier, redirect_uri=redirect_uri, resource=fields.get("resource"))
    return f"{endpoint}?{urlencode(fields)}", started


async def _page(
    renewal: Renewal, login: Login, grant: OAuthLogin, challenge: Challenge, client_name: str, redirect_uri: str
) -> tuple[str, Login]:
    """Return the address of the page, and the login with what was found out."""
    scope = " ".join(grant.scopes) or None
    metadata = OAuthClientMetadata(client_name=client_name, redirect_uris=[AnyUrl(redirect_uri)], scope=scope)
    draft = SdkTokenStorage(known_client(login, grant, redirect_uri), None)
    reach = AllowedAddresses(renewal.url, grant.issuer)
    binding = TokenBinding(login, renewal.nonces, challenge)
    shown: list[str] = []

    async def show(page: str) -> None:
        require_usable_server(context, grant, reach)
        reach.check(page)
        shown.append(page)
        raise _PageShownError

    async def never() -> NoReturn:
        raise _PageShownError

    provider = OAuthClientProvider(
        renewal.url,
        metadata,
        draft,
        redirect_handler=show,
        callback_handler=never,
        client_metadata_url=grant.client_metadata_url,
    )
    context = provider.context
    try:
        await drive(renewal, provider, grant, challenge, binding)
    except _PageShownError:
        pass
    except OAuthRegistrationError as error:
        if context.oauth_metadata is None and context.protected_resource_metadata is None:
            raise SignInError(no_authorization_server(challenge)) from error
        raise
    found = {
        "client": context.client_info,
        "metadata": context.oauth_metadata,
        "resource": context.protected_resource_metadata,
        "proof_key": binding.key,
    }
    endpoint, mark, query = shown[0].rpartition("?")  # the endpoint may have a query (RFC 6749 section 3.1)
    page = f"{endpoint}{'&' if '?' in endpoint else mark}{query}"
    return binding.page(page), login.model_copy(update=found)


async def finish_login(url: str, grant: OAuthLogin, started: StartedLogin, parameters: Mapping[str, str]) -> Login:
    """Exchange the authorization code of a redirect for tokens.

    Args:
        url: The MCP server.
        grant: The grant.
        started: The login; its ``state`` was that of the redirect.
        parameters: Parameters of the redirect: ``code`` and ``iss``, or ``error``.

    Raises:
        SignInError: The redirect is not from the expected authorization server, the login was refused, or the code is
            not accepted.
    """
    login = started.login
    try:
        validate_authorization_response_iss(parameters.get("iss"), oauth_metadata=login.metadata)
    except OAuthFlowError as error:  # nothing in such a response may be used (RFC 9207 section 2.4)
        raise SignInError("the login failed: its response is not from the expected server (iss)") from error
    if (refusal := parameters.get("error")) is not None:
        reason = ": ".join(filter(None, (refusal, parameters.get("error_description"))))
        reason = "".join(char for char in reason if char.isprintable())[:_MAX_ERROR_CHARS]
        raise SignInError(f"the login was refused ({reason})")
    if not (code := parameters.get("code")):
        raise SignInError("the login failed: its response has no code")
    context = OAuthContext(
        url, OAuthClientMetadata(redirect_uris=None), SdkTokenStorage(login.client, None), None, None
    )
    context.client_info, context.oauth_metadata = login.client, login.metadata
    assert login.client is not None, "it was registered"
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": started.redirect_uri,
        "client_id": login.client.client_id or "",
        "code_verifier": started.verifier,
    }
    if started.resource is not None:
        fields["resource"] = started.resource
    metadata = login.metadata
    base = context.get_authorization_base_url(url)
    endpoint = urljoin(base, "/token") if metadata is None else str(metadata.token_endpoint)
    binding = TokenBinding(login, Nonces())
    try:
        AllowedAddresses(url, grant.issuer).check(endpoint)
        data, headers = context.prepare_token_auth(fields, {})
        async with authority_client() as http:
            answer = await binding.send(http.build_request("POST", endpoint, data=data, headers=headers), http)
        if not answer.is_success:
            raise SignInError(f"the login failed: its code was not accepted (HTTP {answer.status_code})")
        tokens = await handle_token_response_scopes(answer)
    except httpx2.HTTPError as error:
        raise SignInError(f"the login failed: {type(error).__name__}", is_permanent=False) from error
    except (OAuthFlowError, ValueError, OverflowError) as error:
        raise SignInError("the login failed: its tokens are malformed") from error
    return binding.kept(login).renewed(tokens).model_copy(update={"wanted_scope": None})

"""Revocation: the end of a login (RFC 7009)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthClientMetadata

from bridge.client.auth.draft import Draft
from bridge.client.auth.errors import SignInError
from bridge.client.auth.server_validation import Reach
from bridge.client.auth.store import LoginStore, login_key
from bridge.client.limits import authority_client
from bridge.errors import WireError

if TYPE_CHECKING:
    from bridge.client.auth.grants import OAuthLogin
    from bridge.client.auth.login import Login

_SECONDS = 10.0
_logger = logging.getLogger("bridge.client")


async def logged_out(url: str, grant: OAuthLogin, store: LoginStore | None = None) -> bool:
    """Forget a login, and have its tokens revoked where that can be done.

    Args:
        url: The server.
        grant: As whom somebody logged in.
        store: Where logins are kept.

    Returns:
        Whether there was one.

    Raises:
        OSError: It cannot be removed.
    """
    store = store or LoginStore()
    key = login_key(url, grant.client_id)
    try:
        login = await store.load(key)
    except WireError as error:
        _logger.warning("the tokens are not revoked: %s", error)
        login = None
    if login is not None:
        await _revoked(url, grant, login)
    return await store.delete(key)


async def _revoked(url: str, grant: OAuthLogin, login: Login) -> None:
    endpoint = login.metadata.revocation_endpoint if login.metadata is not None else None
    if endpoint is None or login.tokens is None or login.client is None:
        return
    context = OAuthContext(url, OAuthClientMetadata(redirect_uris=None), Draft(login.client, login.tokens), None, None)
    context.client_info = login.client
    kinds = {"refresh_token": login.tokens.refresh_token, "access_token": login.tokens.access_token}
    try:
        Reach(url, grant.issuer).check(endpoint)
        async with authority_client(_SECONDS) as http:
            for kind, token in kinds.items():
                if token is None:
                    continue
                fields = {"token": token, "token_type_hint": kind, "client_id": login.client.client_id}
                data, headers = context.prepare_token_auth(fields, {})
                answer = await http.post(str(endpoint), data=data, headers=headers)
                if not answer.is_success:
                    _logger.warning("the %s is not revoked: HTTP %s", kind.replace("_", " "), answer.status_code)
    except (httpx2.HTTPError, OAuthFlowError, SignInError) as error:
        _logger.warning("the tokens are not revoked: %s", str(error) or type(error).__name__)

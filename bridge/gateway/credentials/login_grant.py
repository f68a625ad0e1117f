"""Logins of callers at a server's authorization server: the page, and what its redirect brings."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from bridge.client.auth.errors import SignInError
from bridge.client.auth.login import Login
from bridge.client.auth.remote_login import StartedLogin, finish_login, start_login
from bridge.gateway.credentials.grants import GrantDescription
from bridge.gateway.credentials.store import Credential, CredentialKey
from bridge.redaction import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.auth.grants import OAuthLogin
    from bridge.gateway.credentials.keeper import CredentialKeeper
    from bridge.gateway.credentials.store import GrantKind

LOGIN_SECONDS = 600.0
"""Maximum seconds of a login in the browser."""


class CallerLoginGrant:
    """A `bridge.gateway.credentials.grants.LoginGrant`.

    The client that is registered for a server is kept, and used for all callers.

    Args:
        keeper: Keeps logins under way, and the client.
        server: Name of the server.
        url: The server's URL.
        grant: The grant.
        client_name: Name of the client, if it has to be registered.
    """

    kind: GrantKind = "login"

    def __init__(self, keeper: CredentialKeeper, server: str, url: str, grant: OAuthLogin, client_name: str) -> None:
        self.server = server
        self.url = url
        self.grant = grant
        self._keeper = keeper
        self._client_name = client_name
        self._registration = CredentialKey("", "", server)

    def describe(self) -> GrantDescription:
        """Describe what the caller is asked for."""
        return GrantDescription(
            server=self.server,
            kind=self.kind,
            address=redact_url(self.url).shown,
            issuer=self.grant.issuer,
            scopes=self.grant.scopes,
        )

    async def start(self, key: CredentialKey, redirect_uri: str, state: str, *, scope: str | None = None) -> str:
        """Start a login; see `LoginGrant.start`."""
        kept = await self._keeper.load(self._registration)
        known = None if kept is None else kept.login
        page, started = await start_login(
            self.url,
            self.grant,
            known,
            client_name=self._client_name,
            redirect_uri=redirect_uri,
            state=state,
            scope=scope,
        )
        client = started.login.client
        if self.grant.client_id is None and (known is None or known.client != client):
            registered = Login(server_url=started.login.server_url, client=client)
            await self._keeper.store.put(self._registration, Credential(kind=self.kind, login=registered))
        value = {"caller": _text(key), "login": started.model_dump(mode="json", exclude_none=True)}
        await self._keeper.store.put_once(_name(state), value, LOGIN_SECONDS)
        return page

    async def finish(self, key: CredentialKey, parameters: Mapping[str, str]) -> Credential:
        """Exchange the authorization code for tokens; see `LoginGrant.finish`."""
        value = await self._keeper.store.take_once(_name(parameters.get("state", "")))
        if value is None or not hmac.compare_digest(str(value.get("caller")).encode(), _text(key).encode()):
            raise SignInError("the login has ended: it was finished before, took too long, or is another caller's")
        login = await finish_login(self.url, self.grant, StartedLogin.model_validate(value["login"]), parameters)
        return Credential(kind=self.kind, login=login)


def _text(key: CredentialKey) -> str:
    return f"{key.issuer}\n{key.subject}\n{key.server}"


def _name(state: str) -> str:
    return f"login {state}"

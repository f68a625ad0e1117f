"""CredentialBroker: the credentials of a gateway's callers, for all servers with ``"per": "caller"``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote
from weakref import WeakValueDictionary

from bridge.client.auth.assertions import exchange_assertion, issuer_of
from bridge.client.auth.grants import (
    AssertionExchange,
    ExchangedToken,
    IdentityAssertion,
    OAuthLogin,
    PerCaller,
    SecretHeader,
    TokenExchange,
)
from bridge.client.auth.store import revoke
from bridge.client.transports.http import HttpTransport
from bridge.errors import DefinitionError
from bridge.gateway.credentials.errors import CallerRefusedError
from bridge.gateway.credentials.keeper import CredentialKeeper
from bridge.gateway.credentials.login_grant import CallerLoginGrant
from bridge.gateway.credentials.secret_grant import CallerSecretGrant, SecretAuth
from bridge.gateway.credentials.signed_in import ExchangedAuth, SignedInAuth
from bridge.gateway.credentials.store import CredentialKey

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.client.auth.grants import Grant
    from bridge.client.callers import CallerAuth
    from bridge.client.config.servers import ServerConfig
    from bridge.gateway.credentials.grants import CallerGrant
    from bridge.gateway.credentials.signed_in import TokenSource
    from bridge.gateway.credentials.store import CredentialStore
    from bridge.tools.caller import Caller

_KEYS = "key"
_BEARER = "bearer "
_CLAIMS_OF_ONE_TOKEN = frozenset(
    {
        *("iat", "exp", "nbf", "jti", "auth_time", "sid", "nonce", "at_hash", "c_hash"),
        *("active", "uti", "aio", "rh", "xms_ftd"),
    }
)
"""Claims that differ from one token of a caller to the next, and permit nothing."""
_ANONYMOUS = "it needs a credential of each caller, and this caller is anonymous: give the gateway a token or key"


class CredentialBroker(CredentialKeeper):
    """Obtains, keeps and forgets the credentials of a gateway's callers.

    Args:
        store: Keeps them; it is opened and closed by its owner.
        grants: Grants of servers that no configuration has; None for none.
        name: Name of the gateway, with which it registers as a client.
        public_url: URL under which browsers reach the gateway, without a path; None if there are no pages for logins.
    """

    def __init__(
        self,
        store: CredentialStore,
        grants: Mapping[str, CallerGrant] | None = None,
        *,
        name: str = "bridge",
        public_url: str | None = None,
    ) -> None:
        super().__init__(store)
        self.name = name
        self.public_url = None if public_url is None else public_url.rstrip("/")
        self.grants: dict[str, CallerGrant] = dict(grants or {})
        """The grants that need the caller in a browser, by the server's name."""
        self._servers: dict[str, ServerAuths] = {}

    def client_metadata_url(self, server: str | None = None) -> str | None:
        """Return the URL of a client ID metadata document of the gateway; None if it is not https.

        Args:
            server: The server at which callers log in; None for the gateway without redirects of its servers.
        """
        if self.public_url is None or not self.public_url.startswith("https://"):
            return None
        return f"{self.public_url}/connect/client{'' if server is None else '/' + quote(server, safe='')}.json"

    def auths_of(self, config: ServerConfig) -> ServerAuths | None:
        """Return the credentials of the callers of a server; None if all have the same.

        Raises:
            DefinitionError: The server has no URL, or its grant needs a client ID, or the issuer that gets a secret.
        """
        per_caller, transport = config.per_caller, config.transport
        self.grants.pop(config.name, None)
        if per_caller is None or not isinstance(transport, HttpTransport):
            self._servers.pop(config.name, None)
            return None
        grant = per_caller.grant
        if isinstance(grant, OAuthLogin | AssertionExchange) and grant.client_secret and grant.issuer is None:
            reason = "needs the 'issuer' that gets the 'clientSecret': a server could name any other"
            raise DefinitionError(f"server {config.name!r}, 'auth': {reason}")
        if isinstance(grant, SecretHeader):
            self.grants[config.name] = CallerSecretGrant(config.name, transport.redacted(), grant)
        elif isinstance(grant, OAuthLogin):
            if grant.client_metadata_url is None and grant.client_id is None:
                grant = replace(grant, client_metadata_url=self.client_metadata_url(config.name))
            self.grants[config.name] = CallerLoginGrant(self, config.name, transport.url, grant, self.name)
        elif isinstance(grant, AssertionExchange) and grant.client_id is None:
            if (client_id := self.client_metadata_url()) is None:
                raise DefinitionError(f"server {config.name!r}, 'auth': needs a 'clientId', or a public https URL")
            grant = replace(grant, client_id=client_id)
        auths = self._servers[config.name] = ServerAuths(
            self, config.name, transport.url, replace(per_caller, grant=grant)
        )
        return auths

    def keep_servers(self, names: Collection[str]) -> None:
        """Take no more credentials for the servers of `auths_of` that are not among these; those given are kept."""
        for name in self._servers.keys() - names:
            del self._servers[name]
            self.grants.pop(name, None)

    async def forget(self, key: CredentialKey) -> bool:
        """Disconnect a caller from a server, end its connections, and revoke its tokens; return True if there were any.

        Raises:
            CredentialStoreError: The store cannot be written.
        """
        async with self.renewing(key):  # a renewal must not bring it back
            credential = await self.store.get(key)
            was_there = await self.store.delete(key)
        if was_there:
            self._notify(key)
        server = self._servers.get(key.server)
        if server is not None:
            server.end(key)
        if credential is not None and (login := credential.login) is not None and login.access_token is not None:
            url, issuer = (login.server_url, None) if server is None else (server.url, server.issuer)
            await revoke(url, issuer, login)
        return was_there


_Identity: TypeAlias = tuple[str, str] | tuple[str, str, frozenset[str], tuple[tuple[str, str], ...]]
"""Issuer and subject of a caller; with its scopes and claims, if its token is exchanged for one that has them."""


class ServerAuths:
    """The credentials of the callers of one server; a `bridge.client.callers.CallerAuths`.

    Args:
        keeper: Keeps them.
        server: Name of the server.
        url: URL of the server.
        per_caller: The configuration.
    """

    def __init__(self, keeper: CredentialKeeper, server: str, url: str, per_caller: PerCaller) -> None:
        self.url = url
        self._keeper = keeper
        self._server = server
        self._grant = per_caller.grant
        self._shares = per_caller.anonymous == "shared"
        self._exchanges = isinstance(per_caller.grant, TokenExchange | AssertionExchange)
        self._known: WeakValueDictionary[_Identity, CallerAuth] = WeakValueDictionary()

    @property
    def issuer(self) -> str | None:
        """The configured authorization server; None for the server's choice."""
        return self._grant.issuer if isinstance(self._grant, OAuthLogin | AssertionExchange) else None

    def of(self, caller: Caller | None, headers: Mapping[str, str]) -> CallerAuth | None:
        """Return the credential of a caller; see `CallerAuths.of`."""
        if caller is None:
            if self._shares:
                return None
            raise CallerRefusedError(self._server, _ANONYMOUS)
        if not self._exchanges:
            return self._known_or_new(caller.identity)
        if caller.issuer == _KEYS:
            reason = "it needs a token of an identity provider, which is exchanged, and this caller has a key"
            raise CallerRefusedError(self._server, reason)
        claims = tuple(
            sorted((name, repr(value)) for name, value in caller.claims.items() if name not in _CLAIMS_OF_ONE_TOKEN)
        )
        auth = self._known_or_new((*caller.identity, caller.scopes, claims))
        authorization = headers.get("authorization", "")
        if isinstance(auth, ExchangedAuth) and authorization.lower().startswith(_BEARER):
            auth.subject_token = authorization[len(_BEARER) :].strip()
        return auth

    def end(self, key: CredentialKey) -> None:
        """End the connections of a caller."""
        for identity, auth in tuple(self._known.items()):
            if identity[:2] == (key.issuer, key.subject):
                del self._known[identity]
                if auth.on_end is not None:
                    auth.on_end()

    def _known_or_new(self, identity: _Identity) -> CallerAuth:
        auth = self._known.get(identity)
        if auth is None:
            auth = self._known[identity] = self._new(identity)
        return auth

    def _new(self, identity: _Identity) -> CallerAuth:
        key = CredentialKey(identity[0], identity[1], self._server)
        match self._grant:
            case SecretHeader() as header:
                return SecretAuth(self._keeper, key, header)
            case OAuthLogin() as login:
                return SignedInAuth(self._keeper, key, self.url, login)
            case grant:
                return ExchangedAuth(key, self._server, self.url, partial(_grant_of, self.url, grant))


async def _grant_of(url: str, grant: TokenExchange | AssertionExchange, subject_token: TokenSource) -> Grant:
    """Return the grant of one caller."""
    if isinstance(grant, TokenExchange):
        return ExchangedToken(exchange=grant, subject_token=subject_token)
    assert grant.client_id is not None, "it was checked"
    return IdentityAssertion(
        client_id=grant.client_id,
        client_secret=grant.client_secret,
        client_authentication=grant.client_authentication,
        issuer=grant.issuer or await issuer_of(url),
        scopes=grant.scopes,
        assertion=exchange_assertion(
            grant.idp_token_url,
            client_id=grant.idp_client_id or grant.client_id,
            client_secret=grant.idp_client_secret,
            id_token=subject_token,
            subject_token_type=grant.subject_token_type,
        ),
    )

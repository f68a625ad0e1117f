"""Tokens of callers: signing of one caller's requests, and renewal, once for all calls that wait."""

from __future__ import annotations

from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import anyio
import httpx2

from bridge.client.auth.errors import SignInError
from bridge.client.auth.sign_in import SignIn
from bridge.client.callers import CallerAuth
from bridge.gateway.credentials.errors import CallerRefusedError, CredentialNeededError, CredentialStoreError
from bridge.gateway.credentials.store import CHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable

    from bridge.client.auth.grants import Grant, OAuthLogin
    from bridge.client.auth.login import Login
    from bridge.errors import ServerAuthError
    from bridge.gateway.credentials.keeper import CredentialKeeper
    from bridge.gateway.credentials.store import CredentialKey

    TokenSource: TypeAlias = Callable[[], Awaitable[str]]


class CallerLogins:
    """Keeps the login of one caller; a `bridge.client.auth.store.LoginKeeper`.

    Args:
        keeper: Keeps the credentials of all callers.
        key: Caller and server.
    """

    def __init__(self, keeper: CredentialKeeper, key: CredentialKey) -> None:
        self._keeper = keeper
        self._key = key

    async def load(self, key: str) -> Login | None:  # noqa: ARG002 - it has one
        """Load the login; None if there is none."""
        try:
            credential = await self._keeper.load(self._key)
        except CredentialStoreError as error:
            raise OSError(str(error)) from error
        return None if credential is None else credential.login

    async def save(self, key: str, login: Login) -> None:  # noqa: ARG002 - it has one
        """Replace the login; one whose tokens have ended, or that was deleted meanwhile, is not kept."""
        try:
            await self._keeper.renewed(self._key, login)
        except CredentialStoreError as error:
            raise OSError(str(error)) from error

    @asynccontextmanager
    async def locked(self, key: str) -> AsyncIterator[None]:  # noqa: ARG002 - it has one
        """Hold the exclusive right to renew the login during this block."""
        try:
            async with self._keeper.renewing(self._key):
                yield
        except CredentialStoreError as error:
            raise OSError(str(error)) from error


class SignedInAuth(CallerAuth):
    """Signs the requests of one caller with its login."""

    def __init__(self, keeper: CredentialKeeper, key: CredentialKey, url: str, grant: OAuthLogin) -> None:
        self.owner: Hashable = key
        self._key = key
        self._keeper = keeper
        self._sign_in = SignIn(url, grant, store=CallerLogins(keeper, key), always_signs=True)
        self._check_at = 0.0

    def ready_headers(self) -> dict[str, str] | None:
        """Return the headers; None if the login has to be loaded or renewed, or needs proofs."""
        return self._sign_in.ready_headers() if monotonic() < self._check_at else None

    async def prepare(self) -> None:
        """Load the login, and look now and then if it was deleted elsewhere."""
        if monotonic() >= self._check_at:
            try:
                login = await self._sign_in.reload()
            except SignInError as error:
                raise CallerRefusedError(self._key.server, str(error), is_permanent=False) from error
            if login is None or login.access_token is None:
                raise CredentialNeededError(self._key.server, "login", self._key)
            self._check_at = monotonic() + CHECK_SECONDS

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request, and renew the token if necessary; see `SignIn.async_auth_flow`."""
        return self._sign_in.async_auth_flow(request)

    async def refused(self, error: ServerAuthError) -> ServerAuthError:
        """Ask for another login, unless the authorization server only could not be reached."""
        self._check_at = 0.0
        if not error.failure.is_permanent:
            return error
        used = self._sign_in.login
        login = await self._sign_in.reload()
        if login is not None and login.wanted_scope is not None:
            return CredentialNeededError(self._key.server, "login", self._key, scope=login.wanted_scope)
        await self._keeper.drop(self._key, None if used is None else used.access_token)
        return CredentialNeededError(self._key.server, "login", self._key, refused=True)


class ExchangedAuth(CallerAuth):
    """Signs the requests of one caller with a token that was exchanged for the caller's token at the gateway.

    Args:
        owner: The caller.
        server: Name of the server.
        url: URL of the server.
        grant: Returns the grant, given the source of the caller's token.
    """

    def __init__(
        self, owner: Hashable, server: str, url: str, grant: Callable[[TokenSource], Awaitable[Grant]]
    ) -> None:
        self.owner = owner
        self.subject_token: str | None = None
        """The latest token of the caller at the gateway; None before it is known."""
        self._server = server
        self._url = url
        self._grant = grant
        self._sign_in: SignIn | None = None
        self._lock = anyio.Lock()

    def ready_headers(self) -> dict[str, str] | None:
        """Return the headers; None if the token has to be obtained, or needs proofs."""
        sign_in = self._sign_in
        if sign_in is None or sign_in.login is None or sign_in.login.is_stale:
            return None
        return sign_in.ready_headers()

    async def prepare(self) -> None:
        """Obtain a token, if there is none, or it expires soon."""
        try:
            async with self._lock:
                if self._sign_in is None:
                    grant = await self._grant(self._subject_token)
                    self._sign_in = SignIn(self._url, grant, always_signs=True)
            await self._sign_in.obtain()
        except httpx2.HTTPError as error:
            reason = f"its authorization server cannot be reached ({type(error).__name__})"
            raise CallerRefusedError(self._server, reason, is_permanent=False) from error
        except SignInError as error:
            raise CallerRefusedError(self._server, str(error), is_permanent=error.is_permanent) from error

    def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request, and renew the token if necessary; see `SignIn.async_auth_flow`."""
        assert self._sign_in is not None, "it was prepared"
        return self._sign_in.async_auth_flow(request)

    async def refused(self, error: ServerAuthError) -> ServerAuthError:
        """Return the error: the next call obtains another token."""
        return error

    async def _subject_token(self) -> str:
        if self.subject_token is None:
            raise SignInError("the caller's token is not known here: it has to call again", is_permanent=False)
        return self.subject_token

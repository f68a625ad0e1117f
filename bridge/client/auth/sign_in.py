"""Signing of a server's requests, with token renewal shared by all connections.

    sign ──> send ──> success ─────────────────────────────────────────> response
              ╰──> 401 ──> token already renewed? ── yes ──> send again
              │               ╰── no ──> refresh ──────────╯     ╰──> 401 ──╮
              ├──> 403, insufficient_scope ──> log in for more <────────────╯
              ╰──> 401, use_dpop_nonce ──> send again, with the nonce in the proof

A request with a valid token never waits. A browser is opened only if a function for that was passed in.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import anyio
import httpx2
from anyio.lowlevel import RunVar
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import union_scopes

from bridge.client.auth.challenge import (
    QUESTION_HEADERS,
    Challenge,
    RequestSigner,
    credentials_needed,
    request_challenge,
    token_refused,
)
from bridge.client.auth.dpop import Nonces
from bridge.client.auth.errors import SignInError
from bridge.client.auth.flow import Renewal, authorize, refresh, request_grant
from bridge.client.auth.grants import OAuthLogin
from bridge.client.auth.login import Login
from bridge.client.auth.loopback import listen_for_redirect
from bridge.client.auth.ready import ReadyAuth
from bridge.client.auth.store import LoginStore, StoredLogin, login_key
from bridge.client.transports.http_client import START_SOON
from bridge.client.transports.received_data import authority_client
from bridge.portal import start_detached
from bridge.redaction import redact_url, scrub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    from bridge.client.auth.grants import Grant
    from bridge.client.auth.store import LoginKeeper

_MAX_SENDS = 4
"""Maximum sends of a request: first, with a token renewed elsewhere, with a refreshed one, with that of a login."""
_SOON_SECONDS = 1.0
"""Seconds that a request with a valid but expiring token waits for its renewal."""
_REST_SECONDS = 5.0
"""Seconds before the renewal of a valid token is tried again."""
_MAX_REASON_CHARS = 300
_PROTOCOL_HEADER = "mcp-protocol-version"
_logger = logging.getLogger("bridge.client")

_Shared: TypeAlias = "WeakValueDictionary[tuple[str, Grant], SignIn]"
_of_event_loop: RunVar[_Shared] = RunVar("bridge.client.auth.sign_in")


class SignIn(ReadyAuth):
    """Auth that signs the requests to one server, for one login; connections of one event loop may share it.

    Logins in a browser are stored on disk (`LoginStore`), others in memory, if there is no other store.

    Args:
        url: The server.
        grant: The grant type.
        show_page: Shows a login page to the user; None if no browser may be opened.
        hint: Suggested action if a login is needed and `show_page` is None.
        key_hint: The same if the server names no authorization server; None for `hint`.
        store: Store of the login; None for the default.
        always_signs: Never send a request without a token.
    """

    requires_response_body = False

    def __init__(
        self,
        url: str,
        grant: Grant,
        *,
        show_page: Callable[[str], Awaitable[None]] | None = None,
        hint: str | None = None,
        key_hint: str | None = None,
        store: LoginKeeper | None = None,
        always_signs: bool = False,
    ) -> None:
        is_person = isinstance(grant, OAuthLogin)
        self.key = login_key(url, grant.client_id)
        self._url = url
        self._grant = grant
        self._show_page = show_page
        self._hint = (hint or "run: bridge login TARGET") if is_person else None
        self._key_hint = key_hint or self._hint
        if store is None and is_person:
            store = LoginStore()  # a program can request its tokens at any time
        self._shown = redact_url(url).shown
        self._keeping = StoredLogin(store, self.key, shown=self._shown, hint=self._hint)
        self._always_signs = always_signs
        self._login: Login | None = None
        self._is_loaded = False
        self._lock = anyio.Lock()
        self._renewals = 0
        self._logins_made = 0
        self._refreshes_made = 0
        self._failure: SignInError | None = None
        self._rests_until = 0.0
        self._signature = RequestSigner()
        self._authority_nonces = Nonces()

    def __repr__(self) -> str:
        return f"SignIn({self._shown!r}, {self._grant!r})"

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request, and again if the server asks for another token.

        Raises:
            SignInError: No token that the server accepts can be obtained.
        """
        used = await self._usable(request)
        if self._always_signs and (used is None or used.access_token is None):
            raise SignInError("there is no token", hint=self._hint)
        signature, logins_made, refreshes_made = self._signature, self._logins_made, self._refreshes_made
        for sends in range(1, _MAX_SENDS + 1):
            response = yield signature.put(request, used)
            if signature.wants_nonce(response, used):
                response = yield signature.put(request, used)
            if (challenge := signature.challenge_in(response, used)) is None:
                return
            if sends == _MAX_SENDS or self._logins_made > logins_made:
                raise SignInError(token_refused(challenge, used), hint=self._hint, is_step_up=challenge.is_step_up)
            may_refresh = not challenge.is_step_up and self._refreshes_made == refreshes_made
            token = used.access_token if used is not None else None
            used = await self._renewed(token, challenge, request, may_refresh=may_refresh)

    @property
    def login(self) -> Login | None:
        """The login that was loaded or made last; None for none."""
        return self._login

    async def reload(self) -> Login | None:
        """Load the login again, as another process may have changed or deleted it; return it.

        Raises:
            SignInError: The login cannot be read.
        """
        self._login = await self._keeping.load()
        self._is_loaded = True
        return self._login

    async def obtain(self) -> None:
        """Request a token without a user, if there is none, or it has expired or expires soon.

        Raises:
            SignInError: None can be obtained.
        """
        login = self._login
        if login is None or login.access_token is None or login.is_stale:
            used = None if login is None else login.access_token
            request = httpx2.Request("GET", self._url, headers=QUESTION_HEADERS)
            await self._renewed(used, Challenge(is_unasked=True), request, may_refresh=True)

    def ready_headers(self) -> dict[str, str] | None:
        """Headers that sign a request now; None if a login must be loaded or renewed first, or needs proofs."""
        login = self._login
        if login is None or login.access_token is None:
            return {} if self._is_loaded and not self._always_signs else None
        if login.proof_key is not None or self._is_to_be_refreshed(login):
            return None
        return {"authorization": f"Bearer {login.access_token}"}

    async def _usable(self, request: httpx2.Request) -> Login | None:
        login = self._login if self._is_loaded else await self.reload()
        if login is None or not self._is_to_be_refreshed(login):
            return login
        if not login.has_ended:
            return await self._renewed_soon(login, request)
        try:
            return await self._renewed(login.access_token, None, request, may_refresh=True)
        except SignInError as error:
            if error.is_permanent:
                return None  # send without a token, so that the server's challenge is known
            raise

    async def _renewed_soon(self, login: Login, request: httpx2.Request) -> Login | None:
        """Wait briefly for the renewal of a valid token; else return the valid token while the renewal continues."""
        if self._lock.locked():
            return login
        found: Login | None = login

        async def renew() -> None:
            nonlocal found
            try:
                found = await self._renewed(login.access_token, None, request, may_refresh=True)
            except SignInError as error:
                found = None if error.is_permanent else login
                self._rests_until = monotonic() + _REST_SECONDS
            except Exception as error:  # noqa: BLE001 - any error of the storage; the token is still valid
                _logger.warning("the login to %s cannot be renewed: %s", self._shown, self._scrubbed(error))

        self._rests_until = monotonic() + _REST_SECONDS
        await _start_and_wait(renew, request, _SOON_SECONDS)
        return found

    def _is_to_be_refreshed(self, login: Login) -> bool:
        """True if the token must be renewed before use, unless a renewal was just tried."""
        may_wait = not login.has_ended and monotonic() < self._rests_until
        return login.is_stale and login.can_be_refreshed and not may_wait

    async def log_in(self, headers: Mapping[str, str] | None = None) -> None:
        """Log in even if there is a login, for example as another user or with more scopes; sends the headers as well.

        Raises:
            SignInError: The login failed; the previous one is unchanged.
        """
        request = httpx2.Request("GET", self._url, headers={**(headers or {}), **QUESTION_HEADERS})
        async with self._lock:
            stored: Login | None = None
            with suppress(SignInError):  # a login that cannot be read is replaced
                stored = await self._keeping.load()
            login = stored or Login(server_url=self._shown)
            challenge = await self._asked(request)
            if login.wanted_scope is not None:
                granted_scope = login.tokens.scope if login.tokens is not None else None
                scope = union_scopes(union_scopes(challenge.scope, granted_scope), login.wanted_scope)
                challenge = replace(challenge, scope=scope)
            await self._keep(await self._logged_in(login, challenge, request))
            self._failure = None
            self._renewals += 1

    async def _asked(self, request: httpx2.Request) -> Challenge:
        """Request the challenge for clients without a token; an empty challenge if the server asks for none."""
        try:
            async with authority_client() as http:
                challenge = await request_challenge(http, request.url, request.headers)
        except httpx2.HTTPError as error:
            reason = f"the server does not respond: {self._scrubbed(error) or type(error).__name__}"
            raise SignInError(reason, is_permanent=False) from error
        return challenge or Challenge(is_unasked=True)

    async def _renewed(
        self, used: str | None, challenge: Challenge | None, request: httpx2.Request, *, may_refresh: bool
    ) -> Login:
        """Renew the token that was used, once for all waiting requests."""
        renewals = self._renewals
        async with self._lock:
            is_unchanged = self._failure is None and self._login is not None and self._login.access_token == used
            if self._renewals == renewals or is_unchanged:
                try:
                    self._login = await self._renew(used, challenge, request, may_refresh=may_refresh)
                except SignInError as error:
                    self._failure = error
                    self._renewals += 1
                    raise
                self._failure = None
                self._renewals += 1
            elif self._failure is not None:
                raise self._failure
            assert self._login is not None
            return self._login

    async def _renew(
        self, used: str | None, challenge: Challenge | None, request: httpx2.Request, *, may_refresh: bool
    ) -> Login:
        stored = await self._keeping.load()
        if stored is not None:
            async with self._keeping.alone():
                stored = await self._keeping.load()  # another process may have renewed it
                if stored is not None and stored.access_token not in (None, used) and not stored.is_stale:
                    return stored
                if stored is not None and stored.can_be_refreshed and may_refresh:
                    stored = await self._refreshed(stored, request)
                    if stored.access_token is not None:
                        return stored
        self._login = stored
        if challenge is None:
            raise SignInError("its login has expired", hint=self._hint)
        if not (isinstance(self._grant, OAuthLogin) and self._show_page is None):
            login = await self._logged_in(stored or Login(server_url=self._shown), challenge, request)
            await self._keep(login)
            return login
        if challenge.is_step_up and stored is not None:
            await self._keep(stored.model_copy(update={"wanted_scope": challenge.scope}))
        is_for_a_key = stored is None and challenge.metadata_url is None
        hint = self._key_hint if is_for_a_key else self._hint
        raise SignInError(credentials_needed(challenge, stored), hint=hint, is_step_up=challenge.is_step_up)

    async def _refreshed(self, stored: Login, request: httpx2.Request) -> Login:
        """Refresh and store a login, shielded from cancellation, since a refresh token may be valid only once."""
        with anyio.CancelScope(shield=True):
            async with self._renewal(request) as renewal:
                try:
                    login = await refresh(renewal, stored, self._grant)
                except (OAuthFlowError, httpx2.HTTPError, ValueError) as error:
                    reason = f"its login cannot be renewed: {self._scrubbed(error)}"
                    raise SignInError(reason, is_permanent=False) from error
            await self._keep(login)
        self._refreshes_made += 1
        return login

    @asynccontextmanager
    async def _renewal(self, request: httpx2.Request) -> AsyncIterator[Renewal]:
        version = request.headers.get(_PROTOCOL_HEADER)
        headers = {_PROTOCOL_HEADER: version} if version else {}  # the SDK's client gets no tokens and no content
        async with authority_client() as http:
            copy = httpx2.Request(request.method, request.url, headers=headers)
            yield Renewal(url=self._url, request=copy, http=http, nonces=self._authority_nonces)

    async def _logged_in(self, login: Login, challenge: Challenge, request: httpx2.Request) -> Login:
        try:
            async with self._renewal(request) as renewal:
                logged_in = await self._logged_in_by(renewal, login, challenge)
        except (OAuthFlowError, ValueError, OverflowError) as error:  # expires_in may be any number
            raise SignInError(f"the login failed: {self._scrubbed(error)}") from error
        except httpx2.HTTPError as error:
            reason = f"the login failed: {self._scrubbed(error) or type(error).__name__}"
            raise SignInError(reason, is_permanent=False) from error
        self._logins_made += 1
        return logged_in

    async def _logged_in_by(self, renewal: Renewal, login: Login, challenge: Challenge) -> Login:
        grant = self._grant
        if not isinstance(grant, OAuthLogin):
            return await request_grant(renewal, login, grant, challenge)
        assert self._show_page is not None
        redirect_uri = await self._redirect_uri(login, grant)
        async with listen_for_redirect(redirect_uri, self._show_page) as loopback:
            login = await authorize(renewal, login, grant, challenge, loopback)
        return login  # noqa: RET504 - a context manager might end the block without a value

    async def _redirect_uri(self, login: Login, grant: OAuthLogin) -> str | None:
        """Redirect URI of the registered client, if its port is still free."""
        if grant.redirect_uri is not None or grant.client_id is not None:
            return grant.redirect_uri
        known = login.client.redirect_uris if login.client is not None else None
        if not known:
            return None
        uri = str(known[0])
        try:
            async with listen_for_redirect(uri, _nobody):
                return uri
        except (SignInError, KeyError):
            return None

    async def _keep(self, login: Login) -> None:
        """Store a login; if that fails, it is used until the program ends."""
        self._login, self._is_loaded = login, True
        await self._keeping.save(login)

    def _scrubbed(self, error: Exception) -> str:
        text = " ".join(str(error).split())[:_MAX_REASON_CHARS]
        tokens = self._login.tokens if self._login is not None else None
        known = (tokens.access_token, tokens.refresh_token or "") if tokens is not None else ()
        return scrub(text, (*self._grant.secrets, *known, *redact_url(self._url).secrets))


def shared_sign_in(url: str, grant: Grant, *, hint: str, key_hint: str | None) -> SignIn:
    """Return the `SignIn` of a server and a grant that all connections of this event loop share; see `SignIn`."""
    if (shared := _of_event_loop.get(None)) is None:
        _of_event_loop.set(shared := WeakValueDictionary())
    if (signing := shared.get((url, grant))) is None:
        signing = shared[url, grant] = SignIn(url, grant, hint=hint, key_hint=key_hint)
    return signing


async def _nobody(url: str) -> None:
    """Show no page."""


async def _start_and_wait(
    work: Callable[[], Coroutine[Any, Any, None]], request: httpx2.Request, wait_seconds: float
) -> None:
    """Start a background task of the request's session, if any, and wait for its end for a maximum of seconds."""
    is_over = anyio.Event()

    async def run() -> None:
        try:
            await work()
        finally:
            is_over.set()

    if (start_soon := request.extensions.get(START_SOON)) is not None:
        start_soon(run)
    else:
        start_detached(run, "renewal of a login")
    with anyio.move_on_after(wait_seconds):
        await is_over.wait()

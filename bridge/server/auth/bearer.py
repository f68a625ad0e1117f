"""Bearer authentication: the guard that verifies the credential of a request and identifies its caller.

`Auth` verifies the credential. Verified credentials are cached.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING

from starlette.authentication import AuthCredentials

from bridge.server.auth.credential_monitor import MonitoredCredential
from bridge.server.auth.credentials import HEADER, QUERY_TOKEN, CachedCredential, RequestUser
from bridge.server.auth.failures import NO_CREDENTIAL, Challenge, FailedAuthThrottle, send_challenge
from bridge.server.auth.tokens import IssuerUnavailableError, TokenExpiredError, TokenRefusedError, VerifiedToken
from bridge.server.http.host_origin import client_address
from bridge.server.http.pages import is_below
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Collection

    from mcp.server.auth.provider import AccessToken
    from starlette.types import Scope

    from bridge.server.auth.auth import Auth
    from bridge.server.auth.credential_monitor import CredentialMonitor
    from bridge.server.auth.credentials import CredentialCache
    from bridge.server.http.requests import Request

_logger = logging.getLogger("bridge.server.auth")
_UNAUTHORIZED = 401
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_BEARER = re.compile(rb"bearer[ \t]+[\x21-\x7e]+", re.IGNORECASE)


class BearerAuthGuard:
    """Guard that refuses requests without a valid credential, before their bodies are read."""

    def __init__(
        self,
        auth: Auth,
        cache: CredentialCache,
        *,
        metadata_url: str | None,
        open_paths: Collection[str] = (),
        pages_path: str | None = None,
        monitor: CredentialMonitor | None = None,
        has_profiles: bool = False,
    ) -> None:
        self._auth = auth
        self._cache = cache
        self._metadata_url = metadata_url
        self._open_paths = frozenset(open_paths)
        self._pages_path = pages_path
        self._repetitions = Repetitions()
        self._throttle = FailedAuthThrottle()
        self._monitor = monitor
        self._has_profiles = has_profiles

    def admits_at_once(self, request: Request) -> bool:
        """Identify the caller by a cached credential."""
        found = self._cached(request)
        if found is None:
            return False
        request.identify(found)
        return True

    async def admit(self, request: Request) -> bool:
        """Identify the caller, or refuse the request with a challenge."""
        scope = request.scope
        if not request.needs_credential:
            return True
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["method"] in _READING and path in self._open_paths:
            return True
        if self._pages_path is not None and is_below(path, self._pages_path):
            return True
        found = self._cached(request) or await self._verified(scope)
        if isinstance(found, Challenge):
            await self._refuse(request, found)
            return False
        request.identify(found)
        return True

    def _cached(self, request: Request) -> CachedCredential | None:
        value, query = request.headers.get(HEADER), request.scope["query_string"]
        if value is None or request.head.has_repeated_headers or (query and QUERY_TOKEN.search(query)):
            return None
        head = request.head
        if head.credential_key is None:
            head.credential_key = self._cache.key_of(value)
        return self._cache.find(head.credential_key)

    async def _refuse(self, request: Request, challenge: Challenge) -> None:
        # A credential that was valid before has expired or was revoked; it does not count as a failed attempt.
        is_guess = challenge.status != _UNAUTHORIZED or not self._cache.discard(request.headers.get(HEADER))
        answer = await self._throttle.apply(request.scope, challenge) if is_guess else challenge
        self._log(request.scope, challenge, answer.status)
        await send_challenge(request.send, answer, self._metadata_url)

    def _log(self, scope: Scope, challenge: Challenge, status: int) -> None:
        address, why = client_address(scope), challenge.description
        if (addition := self._repetitions.addition(address, status, why)) is not None:
            level = logging.INFO if challenge.error is None else logging.WARNING
            _logger.log(level, "refused a request from %s with %d: %s%s", address, status, why, addition)

    async def _verified(self, scope: Scope) -> CachedCredential | Challenge:
        values = [value.strip(b" \t") for name, value in scope["headers"] if name == HEADER]
        if (problem := self._syntax_problem(scope, values)) is not None:
            return problem
        store = self._cache.writer()
        try:
            with self._throttle.verifying(scope):
                token = await self._auth.verify_token(_token_in(values[0]))
        except TokenRefusedError as error:
            return replace(self._unauthorized(str(error)), is_guess=not isinstance(error, TokenExpiredError))
        except IssuerUnavailableError as error:
            description = "the issuer of tokens is unavailable at the moment; the server's log says why"
            return Challenge(
                status=503,
                error="temporarily_unavailable",
                description=description,
                retry_after_seconds=error.retry_after_seconds,
            )
        if token is None or (token.expires_at and token.expires_at < int(time())):
            return self._unauthorized("the key or token is unknown, or has expired")
        keep_seconds = token.keep_seconds if isinstance(token, VerifiedToken) else 0.0
        admitted = self._admitted(token, values[0], monotonic() + keep_seconds)
        if isinstance(admitted, CachedCredential) and keep_seconds > 0:
            store(values[0], admitted)
        return admitted

    def _admitted(self, token: AccessToken, value: bytes, until: float) -> CachedCredential | Challenge:
        if missing := self._auth.required_scopes.difference(token.scopes):
            scopes = " ".join(sorted(missing))
            name = self._auth.name_of(token)
            if (addition := self._repetitions.addition(name, scopes)) is not None:
                _logger.warning("%r was not granted %s%s", clip(name), scopes, addition)
            return Challenge(
                status=403,
                error="insufficient_scope",
                description=f"this server needs the scope {scopes}",
                scopes=self._auth.required_scopes,
            )
        access = self._auth.access_of(token)
        if access.profiles is not None and not self._has_profiles:
            description = "this key is for profiles, and the server has none"
            return Challenge(status=403, error="insufficient_scope", description=description)
        monitored = None if self._monitor is None else MonitoredCredential(self._monitor, _token_in(value), token)
        user = RequestUser(
            token,
            access,
            monitored,
            name=self._auth.name_of(token),
            team=self._auth.team_of(token),
            limits=self._auth.limits_of(token),
        )
        return CachedCredential(user, AuthCredentials(token.scopes), until)

    def _syntax_problem(self, scope: Scope, values: list[bytes]) -> Challenge | None:
        if len(values) > 1:
            return _malformed("a request has one Authorization header")
        in_query = QUERY_TOKEN.search(scope["query_string"]) is not None
        if values and in_query:
            return _malformed("a credential belongs into the Authorization header, never into a URL")
        if not values or not values[0].lower().startswith(b"bearer"):
            hint = "; the credential in the URL was not used, and should be replaced" if in_query else ""
            return Challenge(status=401, description=NO_CREDENTIAL + hint, scopes=self._auth.required_scopes)
        if not _BEARER.fullmatch(values[0]):
            return _malformed("the header must have the form Authorization: Bearer KEY-OR-TOKEN")
        return None

    def _unauthorized(self, description: str) -> Challenge:
        return Challenge(status=401, error="invalid_token", description=description, scopes=self._auth.required_scopes)


def _malformed(description: str) -> Challenge:
    return Challenge(status=400, error="invalid_request", description=description)


def _token_in(value: bytes) -> str:
    return value[len(b"bearer") :].strip(b" \t").decode("latin-1")

"""Token introspection: verify opaque tokens by asking their issuer (RFC 7662)."""

from __future__ import annotations

import math
import time
from base64 import b64encode
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote_plus

import anyio

from bridge.errors import DefinitionError
from bridge.server.auth.failures import is_suspected
from bridge.server.auth.issuer import Issuer, require_url
from bridge.server.auth.jwt import LEEWAY_SECONDS, MAX_TOKEN_BYTES
from bridge.server.auth.tokens import (
    IssuerUnavailableError,
    TokenExpiredError,
    TokenRefusedError,
    VerifiedToken,
    audiences_of,
)
from bridge.tools.checks import require_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Kept = tuple[float, Mapping[str, Any]]

CACHE_SECONDS = 30.0
"""Default seconds for which a response is cached, and a revoked token stays valid."""
REFUSED_SECONDS = 10.0
"""Maximum seconds for which a token is cached as inactive."""
FAILED_SECONDS = 1.0
"""Seconds for which a failure is cached, so that not every request waits for an issuer that is down."""
MAX_REQUESTS = 32
"""Maximum number of concurrent requests for new tokens, and as many for tokens that were active before."""
MAX_SUSPECTED_REQUESTS = 4
"""Maximum number of concurrent requests for tokens from addresses with many failed attempts."""
WAIT_SECONDS = 5.0
"""Default seconds for which a token waits for its request."""

_MAX_CACHED = 1024
_KINDS = ("token_use", "typ", "token_type")
"""Members in which issuers name the kind of a token; RFC 7662 defines only the last."""
_OTHER_KINDS = frozenset({"refresh", "refresh_token", "offline", "id", "id_token", "logout", "authorization_code"})
"""Kinds that are not access tokens, as common issuers name them."""

_Each = TypeVar("_Each")


class _PendingRequest:
    """A request to the issuer that further callers wait for. Without an outcome, it was cancelled."""

    def __init__(self) -> None:
        self.is_over = anyio.Event()
        self.answer: _Kept | None = None
        self.failure: IssuerUnavailableError | None = None


class Introspection:
    """Verifies tokens at their issuer's introspection endpoint: a `TokenVerifier` of the SDK.

    Args:
        url: The issuer's introspection endpoint.
        client_id: Id of this server at the issuer.
        client_secret: Secret of this server at the issuer.
        audience: Required ``aud`` of tokens, usually the URL of this server. None if the issuer issues tokens for this
            server alone and names no audience; refresh tokens are then accepted, too, unless the issuer's response
            names their kind.
        issuer: Identifier of the issuer; None if clients need not know it.
        cache_seconds: Seconds for which a response is cached.
        wait_seconds: Maximum seconds for which a token waits while too many requests are open.

    Raises:
        DefinitionError: A URL is invalid.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        audience: str | None,
        issuer: str | None = None,
        cache_seconds: float = CACHE_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        for name, seconds in (("cache_seconds", cache_seconds), ("wait_seconds", wait_seconds)):
            require_seconds(seconds, name, optional=False, may_be_zero=True)
        if audience == "":
            raise DefinitionError("audience must not be empty; pass None if the issuer's tokens have none")
        self.url = require_url(url, "an introspection endpoint", asked="the introspection endpoint")
        self.issuer = None if issuer is None else require_url(issuer, "an issuer", asked="the issuer")
        self.audience = audience
        self._cache_seconds = cache_seconds
        credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()  # RFC 6749, section 2.3.1
        self._headers = {"authorization": f"Basic {b64encode(credentials).decode()}", "accept": "application/json"}
        self._issuer = Issuer(issuer or url)
        self._answers: dict[bytes, _Kept] = {}
        self._refused: dict[bytes, _Kept] = {}
        self._failed: dict[bytes, tuple[float, IssuerUnavailableError]] = {}
        self._slots = {was_active: anyio.Semaphore(MAX_REQUESTS) for was_active in (False, True)}
        self._suspected_slots = anyio.Semaphore(MAX_SUSPECTED_REQUESTS)
        self._wait_seconds = wait_seconds
        self._pending: dict[bytes, _PendingRequest] = {}

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Verify a token.

        Raises:
            TokenExpiredError: It has expired.
            TokenRefusedError: It is invalid.
            IssuerUnavailableError: The issuer cannot be reached.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefusedError(f"the token is over {MAX_TOKEN_BYTES} bytes long")
        until, claims = await self._answer_for(token)
        if claims.get("active") is not True:
            raise TokenRefusedError("the token is not active: it is unknown, has expired or was revoked")
        self._check(claims)
        expires_at = _time_in(claims, "exp")
        return VerifiedToken.of(
            token,
            claims if self.issuer is None else {"iss": self.issuer, **claims},
            subjects=("sub", "username"),
            expires_at=None if expires_at is None else math.ceil(expires_at + LEEWAY_SECONDS),
            resource=self.audience,
            keep_seconds=until - monotonic(),
        )

    async def keep_current(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - never called
        """Close the connections to the issuer when cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            await self._issuer.aclose()

    async def _answer_for(self, token: str) -> _Kept:
        """Return the issuer's response for a token and its expiry; concurrent callers share one request."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        while (known := self._known(digest)) is None:
            pending = self._pending.get(digest)
            if pending is None:
                return await self._request(digest, token)
            await pending.is_over.wait()
            if pending.failure is not None:
                raise _again(pending.failure)
            if pending.answer is not None:  # the cache may not keep it
                return pending.answer
        return known

    async def _request(self, digest: bytes, token: str) -> _Kept:
        pending = self._pending[digest] = _PendingRequest()
        try:
            was_active = digest in self._answers
            is_suspect = is_suspected.get() and not was_active
            slots = self._suspected_slots if is_suspect else self._slots[was_active]
            pending.answer = self._keep(digest, await self._post(token, slots))
        except IssuerUnavailableError as error:
            pending.failure = error
            _put(self._failed, digest, (monotonic() + FAILED_SECONDS, error))
            raise
        finally:
            del self._pending[digest]
            pending.is_over.set()
        return pending.answer

    async def _post(self, token: str, slots: anyio.Semaphore) -> Mapping[str, Any]:
        try:
            with anyio.fail_after(self._wait_seconds):
                await slots.acquire()
        except TimeoutError:
            raise IssuerUnavailableError(f"too many tokens wait for an answer of {self.url}") from None
        try:
            form = {"token": token, "token_type_hint": "access_token"}
            return await self._issuer.request("POST", self.url, data=form, headers=self._headers)
        finally:
            slots.release()

    def _keep(self, digest: bytes, claims: Mapping[str, Any]) -> _Kept:
        """Cache a response; active and refused tokens are kept apart, so that the latter never evict the former."""
        self._answers.pop(digest, None)
        self._failed.pop(digest, None)
        if claims.get("active") is not True:
            refused: _Kept = monotonic() + min(self._cache_seconds, REFUSED_SECONDS), {}
            return _put(self._refused, digest, refused)
        seconds = min(self._cache_seconds, _seconds_left(claims))  # RFC 7662, section 4
        return _put(self._answers, digest, (monotonic() + seconds, claims))

    def _known(self, digest: bytes) -> _Kept | None:
        """Return the cached response for a token; raise the failure if there is none because of a recent one."""
        now = monotonic()
        for answers in (self._answers, self._refused):
            if (answer := answers.get(digest)) is not None and now < answer[0]:
                return answer
        if (failed := self._failed.get(digest)) is not None and now < failed[0]:
            raise _again(failed[1])
        return None

    def _check(self, claims: Mapping[str, Any]) -> None:
        if not _OTHER_KINDS.isdisjoint(str(claims.get(name, "")).rpartition(":")[2].lower() for name in _KINDS):
            raise TokenRefusedError("the token is not an access token")
        now = time.time()
        expires_at, not_before = _time_in(claims, "exp"), _time_in(claims, "nbf")
        if expires_at is not None and expires_at + LEEWAY_SECONDS < now:
            raise TokenExpiredError("the token has expired")
        if not_before is not None and not_before - LEEWAY_SECONDS > now:
            raise TokenRefusedError("the token is not valid yet")
        if self.issuer is not None and claims.get("iss", self.issuer) != self.issuer:
            raise TokenRefusedError("the token is from another issuer")
        if self.audience is not None:
            named = claims.get("aud")
            audiences = {each for each in named if isinstance(each, str)} if isinstance(named, list) else {named}
            if audiences.isdisjoint(audiences_of(self.audience)):
                raise TokenRefusedError("the token is for another audience")

    def __repr__(self) -> str:
        return f"Introspection({self.url!r}, audience={self.audience!r})"


def _again(failure: IssuerUnavailableError) -> IssuerUnavailableError:
    return IssuerUnavailableError(str(failure), failure.retry_after_seconds)


def _put(kept: dict[bytes, _Each], digest: bytes, one: _Each) -> _Each:
    """Add an entry to a cache; evict the oldest if it is full."""
    kept.pop(digest, None)
    if len(kept) >= _MAX_CACHED:
        del kept[next(iter(kept))]
    kept[digest] = one
    return one


def _seconds_left(claims: Mapping[str, Any]) -> float:
    """Return the seconds for which a response may be cached: until the token expires, without leeway."""
    try:
        expires_at = _time_in(claims, "exp")
    except TokenRefusedError:
        return math.inf  # the token is refused each time
    return math.inf if expires_at is None else expires_at - time.time()


def _time_in(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise TokenRefusedError(f"the token's {name} is not a time")
    return float(found)

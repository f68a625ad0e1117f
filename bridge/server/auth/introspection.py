"""Tokens that only their issuer can read: it is asked what each of them is worth (RFC 7662)."""

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
from bridge.server.auth.issuer import Issuer, require_url, warn_if_plain
from bridge.server.auth.jwt import LEEWAY_SECONDS, MAX_TOKEN_BYTES
from bridge.server.auth.tokens import (
    IssuerUnavailableError,
    TokenExpiredError,
    TokenRefusedError,
    VerifiedToken,
    audiences_of,
    bearer_of,
    scopes_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Kept = tuple[float, Mapping[str, Any]]

CACHE_SECONDS = 30.0
"""How long an answer is kept: a token that was taken back counts no longer than that."""

REFUSED_SECONDS = 10.0
"""How long it is kept, at most, that a token is not active."""

FAILED_SECONDS = 1.0
"""How long it is kept that nobody can tell what a token is worth, so that not each request waits for a dead issuer."""

MAX_QUESTIONS = 32
"""How many tokens are asked about at once; as many again that were active before, which wait for no unheard-of ones."""

MAX_SUSPECTED_QUESTIONS = 4
"""How many of those that come from addresses of many bad ones are asked about at once, beside all others."""

WAIT_SECONDS = 5.0
"""How long a token waits to be asked about."""

_KEPT_ANSWERS = 1024
_SUBJECTS = ("sub", "username")
_KINDS = ("token_use", "typ", "token_type")
"""Where issuers say what kind of token it is: no member that RFC 7662 has, but for the last."""
_OTHER_KINDS = frozenset({"refresh", "refresh_token", "offline", "id", "id_token", "logout", "authorization_code"})
"""Which kinds are no access tokens, by what usual issuers call them."""

_Each = TypeVar("_Each")


class _Question:
    """A question that is being asked; there is no outcome where whoever asked it went away."""

    def __init__(self) -> None:
        self.is_over = anyio.Event()
        self.answer: _Kept | None = None
        self.failure: IssuerUnavailableError | None = None


class Introspection:
    """Verifies tokens by asking their issuer: a `TokenVerifier` of the SDK.

    Args:
        url: The issuer's introspection endpoint.
        client_id: Who asks.
        client_secret: The secret of who asks.
        audience: For whom the tokens are: their ``aud``, as a rule the URL of this server. None where the issuer names
            none and issues tokens for this server alone; a refresh token then lets somebody in as well, where the
            issuer's answer does not say that it is one.
        issuer: What the issuer calls itself; None where clients need not be told.
        cache_seconds: How long an answer is kept.
        wait_seconds: How long a token waits, at most, where the issuer is being asked about many others.

    Raises:
        DefinitionError: A URL is none.
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
        if audience == "":
            raise DefinitionError("audience must not be empty; None says that the issuer's tokens name none")
        self.url = require_url(url, "an introspection endpoint")
        self.issuer = None if issuer is None else require_url(issuer, "an issuer")
        self.audience = audience
        warn_if_plain(url, "the introspection endpoint")
        if issuer is not None:
            warn_if_plain(issuer, "the issuer")
        self._cache_seconds = cache_seconds
        credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()  # RFC 6749, section 2.3.1
        self._headers = {"authorization": f"Basic {b64encode(credentials).decode()}", "accept": "application/json"}
        self._issuer = Issuer(issuer or url)
        self._answers: dict[bytes, _Kept] = {}
        self._refused: dict[bytes, _Kept] = {}
        self._failed: dict[bytes, tuple[float, IssuerUnavailableError]] = {}
        self._turns = {was_active: anyio.Semaphore(MAX_QUESTIONS) for was_active in (False, True)}
        self._turns_of_suspected = anyio.Semaphore(MAX_SUSPECTED_QUESTIONS)
        self._wait_seconds = wait_seconds
        self._asking: dict[bytes, _Question] = {}

    async def verify_token(self, token: str) -> VerifiedToken | None:
        """Who bears a token.

        Raises:
            TokenExpiredError: It is none any more.
            TokenRefusedError: It is a bad one.
            IssuerUnavailableError: Nobody can tell, because the issuer cannot be asked.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise TokenRefusedError(f"the token is over {MAX_TOKEN_BYTES} bytes long")
        until, claims = await self._answer_for(token)
        if claims.get("active") is not True:
            raise TokenRefusedError("the token is not active: it is unknown, has expired or was taken back")
        self._check(claims)
        client, subject = bearer_of(claims, _SUBJECTS)
        expires_at = _time_in(claims, "exp")
        return VerifiedToken(
            token=token,
            client_id=client,
            subject=subject,
            scopes=scopes_in(claims),
            expires_at=None if expires_at is None else math.ceil(expires_at + LEEWAY_SECONDS),
            resource=self.audience,
            claims=({} if self.issuer is None else {"iss": self.issuer}) | dict(claims),
            keep_seconds=until - monotonic(),
        )

    async def keep_current(self, changed: Callable[[], None]) -> None:  # noqa: ARG002 - nothing of it changes
        """Close the connections to the issuer when cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            await self._issuer.aclose()

    async def _answer_for(self, token: str) -> _Kept:
        """What the issuer says of a token, and until when that holds: asked once by all who wait for it."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        while (known := self._known(digest)) is None:
            if (failed := self._failed.get(digest)) is not None and monotonic() < failed[0]:
                raise _again(failed[1])
            question = self._asking.get(digest)
            if question is None:
                return await self._ask(digest, token)
            await question.is_over.wait()
            if question.failure is not None:
                raise _again(question.failure)
            if question.answer is not None:  # which may hold for no longer than this moment
                return question.answer
        return known

    async def _ask(self, digest: bytes, token: str) -> _Kept:
        question = self._asking[digest] = _Question()
        try:
            question.answer = self._keep(digest, await self._asked(token, self._turns_for(digest)))
        except IssuerUnavailableError as error:
            question.failure = error
            _put(self._failed, digest, (monotonic() + FAILED_SECONDS, error))
            raise
        finally:
            del self._asking[digest]
            question.is_over.set()
        return question.answer

    def _turns_for(self, digest: bytes) -> anyio.Semaphore:
        was_active = digest in self._answers
        return self._turns_of_suspected if is_suspected.get() and not was_active else self._turns[was_active]

    async def _asked(self, token: str, turns: anyio.Semaphore) -> Mapping[str, Any]:
        try:
            with anyio.fail_after(self._wait_seconds):
                await turns.acquire()
        except TimeoutError:
            raise IssuerUnavailableError(f"too many tokens wait for {self.url} to be asked about them") from None
        try:
            form = {"token": token, "token_type_hint": "access_token"}
            return await self._issuer.post(self.url, form, self._headers)
        finally:
            turns.release()

    def _keep(self, digest: bytes, claims: Mapping[str, Any]) -> _Kept:
        """Keep an answer; apart from each other, so that unheard-of tokens drive out none that are active."""
        is_active = claims.get("active") is True
        self._answers.pop(digest, None)
        self._failed.pop(digest, None)
        if not is_active:
            refused: _Kept = monotonic() + min(self._cache_seconds, REFUSED_SECONDS), {}
            return _put(self._refused, digest, refused)
        seconds = min(self._cache_seconds, _seconds_left(claims))  # RFC 7662, section 4
        return _put(self._answers, digest, (monotonic() + seconds, claims))

    def _known(self, digest: bytes) -> _Kept | None:
        now = monotonic()
        answers = (self._answers.get(digest), self._refused.get(digest))
        return next((each for each in answers if each is not None and now < each[0]), None)

    def _check(self, claims: Mapping[str, Any]) -> None:
        if not _OTHER_KINDS.isdisjoint(str(claims.get(name, "")).rpartition(":")[2].lower() for name in _KINDS):
            raise TokenRefusedError("the token is no access token")
        now = time.time()
        expires_at, not_before = _time_in(claims, "exp"), _time_in(claims, "nbf")
        if expires_at is not None and expires_at + LEEWAY_SECONDS < now:
            raise TokenExpiredError("the token has expired")
        if not_before is not None and not_before - LEEWAY_SECONDS > now:
            raise TokenRefusedError("the token is not valid yet")
        if self.issuer is not None and claims.get("iss", self.issuer) != self.issuer:
            raise TokenRefusedError("the token is of another issuer")
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
    """Keep one more, and the oldest no longer where there are many."""
    kept.pop(digest, None)
    if len(kept) >= _KEPT_ANSWERS:
        del kept[next(iter(kept))]
    kept[digest] = one
    return one


def _seconds_left(claims: Mapping[str, Any]) -> float:
    """How long an answer may be kept: until the token ends by it, to the second, whatever the leeway."""
    try:
        expires_at = _time_in(claims, "exp")
    except TokenRefusedError:
        return math.inf  # and is refused each time
    return math.inf if expires_at is None else expires_at - time.time()


def _time_in(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise TokenRefusedError(f"the token's {name} is no time")
    return float(found)

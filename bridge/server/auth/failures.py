"""Responses to failed authentication (RFC 6750, section 3; RFC 9728, 5.1), and the throttling of failed attempts.

Only refusals are delayed, so a valid credential from the same address is not affected. The exception is introspection:
unknown tokens from a suspected address wait for one another (`is_suspected`).
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

from bridge.server.http.responses import NO_STORE, refusal_response, send_response
from bridge.server.limits.accounts import Accounts
from bridge.server.limits.guard import delay_refusal
from bridge.server.limits.limits import Limits, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Scope, Send

BAD_CREDENTIALS = Rate(100, 60)
"""Failed attempts from one address (of IPv6, one /64 network) that are answered without delay."""
is_suspected: ContextVar[bool] = ContextVar("bridge.server.auth.suspected", default=False)
"""True while a credential from an address over `BAD_CREDENTIALS` is verified."""


class FailedAuthThrottle:
    """Limits failed attempts by address; remembers a bounded number of addresses."""

    def __init__(self, rate: Rate = BAD_CREDENTIALS, *, clock: Callable[[], float] = monotonic) -> None:
        self._accounts = Accounts(Limits(rate=rate), clock)

    @contextmanager
    def verifying(self, scope: Scope) -> Iterator[None]:
        """Context in which the credential of a request is verified."""
        account = self._accounts.of(scope)
        token = is_suspected.set(account.refusal(self._accounts.clock(), None) is not None)
        try:
            yield
        finally:
            is_suspected.reset(token)

    async def apply(self, scope: Scope, challenge: Challenge) -> Challenge:
        """Count a failed attempt, and delay its refusal if the address is over the rate.

        Missing or expired credentials do not count as failed attempts, and are answered unchanged, so that the client
        logs in or refreshes its token. Their refusals are delayed as well if the client keeps sending.

        Returns:
            The response: ``challenge``, or one with status 429 after too many failed attempts.
        """
        account, now = self._accounts.of(scope), self._accounts.clock()
        refusal = account.refusal(now, None)
        is_bad = challenge.is_guess and challenge.error is not None and challenge.retry_after_seconds is None
        if is_bad and refusal is None:
            account.count(now)
            return challenge
        if (
            refusal is not None or challenge.error is None or not challenge.is_guess
        ) and not account.is_answered_at_once(now):
            await delay_refusal()
        if refusal is None or not is_bad:
            return challenge
        seconds = refusal.retry_after_seconds
        reason = f"too many invalid keys and tokens from this address; try again in {seconds} s"
        description = f"{reason}: {challenge.description}"
        return replace(challenge, status=429, description=description, retry_after_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Response to a request whose authentication or authorization failed."""

    status: int
    """400, 401, 403, 429 or 503."""
    description: str
    """Reason, without secrets."""
    error: str | None = None
    """OAuth error code; None if no credential was sent."""
    scopes: frozenset[str] = frozenset()
    """Scopes that are required."""
    retry_after_seconds: float | None = None
    """Seconds after which the client may try again."""
    is_guess: bool = True
    """True if the credential may be a guess; False if it was valid once."""


_UNAVAILABLE = 503
NO_CREDENTIAL = "a key or token is needed: Authorization: Bearer KEY-OR-TOKEN"


async def send_challenge(send: Send, challenge: Challenge, metadata_url: str | None) -> None:
    """Send a challenge, with the URL of the metadata that names the issuers of tokens."""
    body = {"error": challenge.error or "unauthorized", "error_description": challenge.description}
    headers = [NO_STORE]
    if challenge.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(challenge.retry_after_seconds)))
    if challenge.status != _UNAVAILABLE:
        headers.append((b"www-authenticate", _www_authenticate(challenge, metadata_url).encode("latin-1", "replace")))
    await send_response(send, refusal_response(json.dumps(body).encode(), challenge.status, headers))


def _www_authenticate(challenge: Challenge, metadata_url: str | None) -> str:
    params = {} if challenge.error is None else {"error": challenge.error, "error_description": challenge.description}
    if challenge.scopes:
        params["scope"] = " ".join(sorted(challenge.scopes))
    if metadata_url is not None:
        params["resource_metadata"] = metadata_url
    return " ".join(["Bearer", ", ".join(f'{name}="{_quotable(value)}"' for name, value in params.items())]).rstrip()


def _quotable(value: str) -> str:
    return "".join("'" if each in '"\\' else each for each in value if " " <= each <= "~")

"""Challenges; throttling of failed attempts and of their log lines.

Patience: how many bad credentials from one address are answered as fast as they come.

Whoever bears a good one is kept waiting by nobody behind the same address: what is held back was found bad before. Only
where an issuer would have to be asked about each of them do unheard-of ones wait for one another (`is_suspected`).

Challenges: answers to requests without the credential that they need (RFC 6750, section 3; RFC 9728, 5.1).
"""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

from bridge.server.http.responses import NO_STORE, send_counted_error
from bridge.server.limits.accounts import Accounts
from bridge.server.limits.guard import HOLD_SECONDS, delay_refusal
from bridge.server.limits.limits import Limits, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from starlette.types import Scope, Send

BAD_CREDENTIALS = Rate(100, 60)
"""How many bad credentials from one address are simply refused; of IPv6, from one network of 64 bits."""

is_suspected: ContextVar[bool] = ContextVar("bridge.server.auth.suspected", default=False)
"""Whether the credential that is looked at comes from an address with which patience is at an end."""


class FailedAuthThrottle:
    """What is known of the addresses from which bad credentials come; of a bounded number of them.

    Args:
        rate: How many of them one address may send.
        hold_seconds: How long refusals are held back from one that goes on regardless.
        clock: Says what time it is, and never goes back.
    """

    def __init__(
        self,
        rate: Rate = BAD_CREDENTIALS,
        *,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._accounts = Accounts(Limits(rate=rate), clock)
        self._hold_seconds = hold_seconds

    @contextmanager
    def looking(self, scope: Scope) -> Iterator[None]:
        """The time during which the credential of a request is looked at."""
        account = self._accounts.of(scope)
        token = is_suspected.set(account.refusal(self._accounts.clock(), None) is not None)
        try:
            yield
        finally:
            is_suspected.reset(token)

    async def weighed(self, scope: Scope, challenge: Challenge) -> Challenge:
        """What a request that goes no further is to be answered now, when it is: 429 after too many bad credentials.

        That none came at all is no guess, nor is one that has expired: such a request is answered as it is, so that its
        client logs in or renews, but is held back as well from who goes on with it.

        Args:
            scope: The request.
            challenge: Why it goes no further.
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
            await delay_refusal(self._hold_seconds)
        if refusal is None or not is_bad:
            return challenge
        seconds = refusal.retry_after_seconds
        told = f"too many bad keys and tokens came from this address; try again in {seconds} s: {challenge.description}"
        return replace(challenge, status=429, description=told, retry_after_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """Why a request goes no further, and what would help."""

    status: int
    """400, 401, 403, 429 or 503."""
    description: str
    """What is wrong, fit for whoever sent the request."""
    error: str | None = None
    """The error of OAuth; None where no credential came at all."""
    scopes: frozenset[str] = frozenset()
    """What has to be granted."""
    retry_after_seconds: float | None = None
    """When trying again may help."""
    is_guess: bool = True
    """Whether the credential, where one came, may have been made up."""


_UNAVAILABLE = 503


NO_CREDENTIAL = "a key or token is needed: Authorization: Bearer KEY-OR-TOKEN"


async def send_challenge(send: Send, challenge: Challenge, metadata_url: str | None) -> None:
    """Answer a request.

    Args:
        send: Where the answer goes.
        challenge: What is wrong.
        metadata_url: Where a client learns which issuers give tokens for this server; None where none do.
    """
    told = {"error": challenge.error or "unauthorized", "error_description": challenge.description}
    headers = [NO_STORE]
    if challenge.retry_after_seconds is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(challenge.retry_after_seconds)))
    if challenge.status != _UNAVAILABLE:
        headers.append((b"www-authenticate", _written(challenge, metadata_url).encode("latin-1", "replace")))
    await send_counted_error(send, challenge.status, json.dumps(told).encode(), headers)


def _written(challenge: Challenge, metadata_url: str | None) -> str:
    parts = []
    if challenge.error is not None:
        parts = [_quoted("error", challenge.error), _quoted("error_description", challenge.description)]
    if challenge.scopes:
        parts.append(_quoted("scope", _joined(challenge.scopes)))
    if metadata_url is not None:
        parts.append(_quoted("resource_metadata", metadata_url))
    return " ".join(["Bearer", ", ".join(parts)]).rstrip()


def _quoted(name: str, value: str) -> str:
    safe = "".join("'" if each in '"\\' else each for each in value if " " <= each <= "~")
    return f'{name}="{safe}"'


def _joined(scopes: Iterable[str]) -> str:
    return " ".join(sorted(scopes))

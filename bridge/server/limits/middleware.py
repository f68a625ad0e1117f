"""The turnstile: requests of callers who are over their limits go no further, and nothing of their bodies is read."""

from __future__ import annotations

import logging
from random import uniform
from typing import TYPE_CHECKING

from anyio import sleep

from bridge.server.http.probes import METRICS_PATH, STATUS_PATH
from bridge.server.http.requests import HEADERS
from bridge.server.http.responses import PlainResponse, send_error
from bridge.server.limits.accounts import caller_key, current_account
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.http.responses import PendingCall, PlainHandler
    from bridge.server.limits.accounts import Account, Accounts, LimitExceeded

_logger = logging.getLogger("bridge.server")

HOLD_SECONDS = 1.0
"""How long a refusal is held back from a caller who goes on regardless, about: so that it costs next to nothing."""

_VERSION = b"mcp-protocol-version"
_OPEN_PATHS = (STATUS_PATH, METRICS_PATH)


class RateLimitMiddleware:
    """ASGI middleware behind the gate: answers 429 to whoever is over a limit.

    Args:
        app: What is behind it.
        accounts: What each caller takes.
        hold_seconds: How long refusals are held back.
    """

    def __init__(self, app: ASGIApp, *, accounts: Accounts, hold_seconds: float = HOLD_SECONDS) -> None:
        self._app = app
        self._accounts = accounts
        self._hold_seconds = hold_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or (scope["method"] != "POST" and scope["path"].endswith(_OPEN_PATHS)):
            await self._app(scope, receive, send)
            return
        account, now = self._accounts.of(scope), self._accounts.clock()
        is_stream = _is_stream(scope)
        refusal = account.stream_refusal(now) if is_stream else account.refusal(now, scope[HEADERS].get(_VERSION))
        if refusal is not None:
            await self._refuse(account, refusal, now, scope, send)
            return
        account.count(now)
        token = current_account.set(account)
        account.streams += is_stream
        account.requests += not is_stream
        try:
            await self._app(scope, receive, send)
        finally:
            account.streams -= is_stream
            account.requests -= not is_stream
            current_account.reset(token)

    async def _refuse(self, account: Account, refusal: LimitExceeded, now: float, scope: Scope, send: Send) -> None:
        if account.is_answered_at_once(now):
            _logger.warning("refused a request of %r: %s", clip(caller_key(scope)), refusal.told)
        else:
            await delay_refusal(self._hold_seconds)
        await send_error(send, 429, refusal.told, retry_after_seconds=refusal.retry_after_seconds, limit=refusal.limit)


async def delay_refusal(seconds: float) -> None:
    """Wait about so long before a refusal.

    Not all at one time: what is refused together comes again together.
    """
    await sleep(seconds * uniform(0.5, 1.5))  # noqa: S311 - nothing secret


class RateLimitedHandler:
    """The turnstile for requests that are begun without ASGI: those that are refused go the way of all requests.

    Args:
        beginner: What begins with the others.
        accounts: What each caller takes.
    """

    def __init__(self, beginner: PlainHandler, accounts: Accounts) -> None:
        self._beginner = beginner
        self._accounts = accounts
        self._counts_calls = accounts.limits.are_of_calls

    def begin(self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes) -> PlainResponse | PendingCall | None:
        """Begin with a request if it is plain, and its sender within the limits."""
        account, now = self._accounts.of(scope), self._accounts.clock()
        if account.refusal(now, headers.get(_VERSION)) is not None:
            return None
        begun = self._beginner.begin(scope, headers, body)
        if begun is None:
            return None
        account.count(now)
        return RateLimitedCall(begun, account) if self._counts_calls and not isinstance(begun, PlainResponse) else begun


class RateLimitedCall:
    """A call that is run later, by a caller with an account; it is counted from now on.

    Args:
        work: The call.
        account: The caller's.
    """

    __slots__ = ("_account", "_work", "ends_with_client")

    def __init__(self, work: PendingCall, account: Account) -> None:
        self._work = work
        self._account = account
        self.ends_with_client = work.ends_with_client
        account.requests += 1

    async def run(self) -> PlainResponse:
        """Run it."""
        token = current_account.set(self._account)
        try:
            return await self._work.run()
        finally:
            self._account.requests -= 1
            current_account.reset(token)


def _is_stream(scope: Scope) -> bool:
    """Whether a request opens a stream that goes on by itself. What says so and is none is refused by the SDK."""
    method: str = scope["method"]
    return method == "GET" or (method == "POST" and scope[HEADERS].get(b"mcp-method") == b"subscriptions/listen")

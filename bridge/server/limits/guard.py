"""Rate limit guard: refuses requests of callers over their limits, before their bodies are read."""

from __future__ import annotations

import logging
from functools import partial
from random import uniform
from typing import TYPE_CHECKING

from anyio import sleep

from bridge.server.http.probes import METRICS_PATH, STATUS_PATH
from bridge.server.http.responses import send_error
from bridge.server.limits.accounts import Usage, caller_key
from bridge.text import clip

if TYPE_CHECKING:
    from starlette.types import Message, Send

    from bridge.server.http.requests import Request
    from bridge.server.limits.account import Account, LimitExceeded
    from bridge.server.limits.accounts import Accounts

_logger = logging.getLogger("bridge.server")

HOLD_SECONDS = 1.0
"""Average delay of a refusal to a caller that keeps sending, which bounds the cost of refusals."""

_VERSION = b"mcp-protocol-version"
_OPEN_PATHS = (STATUS_PATH, METRICS_PATH)


class RateLimitGuard:
    """Guard that refuses callers over their limits with 429."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def admits_at_once(self, request: Request) -> bool:
        """Check a request against its caller's account, without counting it yet."""
        account, now, is_stream = self._accounts.of(request.scope), self._accounts.clock(), _is_stream(request)
        if _refusal(account, now, request, is_stream=is_stream) is not None:
            return False
        request.usage = Usage(account, now, is_stream=is_stream)
        return True

    async def admit(self, request: Request) -> bool:
        """Count a request in its caller's account, or refuse it with 429."""
        scope = request.scope
        if scope["method"] != "POST" and scope["path"].endswith(_OPEN_PATHS) and not request.is_for_route:
            return True
        account, now, is_stream = self._accounts.of(scope), self._accounts.clock(), _is_stream(request)
        if (refusal := _refusal(account, now, request, is_stream=is_stream)) is not None:
            await self._refuse(account, refusal, now, request)
            return False
        request.usage = Usage(account, now, is_stream=is_stream)
        request.usage.begin()
        request.exits.callback(request.usage.end)
        request.send = partial(_send, request.send, request.usage)
        return True

    async def _refuse(self, account: Account, refusal: LimitExceeded, now: float, request: Request) -> None:
        if account.is_answered_at_once(now):
            _logger.warning("refused a request of %r: %s", clip(caller_key(request.scope)), refusal.text)
        else:
            await delay_refusal()
        seconds, limit = refusal.retry_after_seconds, refusal.limit
        await send_error(request.send, 429, refusal.text, retry_after_seconds=seconds, limit=limit)


async def _send(send: Send, usage: Usage, message: Message) -> None:
    """Send a part of a response. With the last one the request ends, because its client may send the next one then."""
    if message["type"] == "http.response.body" and not message.get("more_body", False):
        usage.end()
    await send(message)


async def delay_refusal() -> None:
    """Wait for a random time around `HOLD_SECONDS`, because clients that are refused together retry together."""
    await sleep(HOLD_SECONDS * uniform(0.5, 1.5))  # noqa: S311 - nothing secret


def _refusal(account: Account, now: float, request: Request, *, is_stream: bool) -> LimitExceeded | None:
    return account.stream_refusal(now) if is_stream else account.refusal(now, request.headers.get(_VERSION))


def _is_stream(request: Request) -> bool:
    """True for a request that opens a stream, judged by its headers."""
    method: str = request.scope["method"]
    if method == "GET":
        return not request.is_for_route
    return method == "POST" and request.headers.get(b"mcp-method") == b"subscriptions/listen"

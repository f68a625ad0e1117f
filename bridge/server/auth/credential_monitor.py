"""Credential monitor: ends open streams whose credentials expire or are revoked.

The credential of a stream is verified again when its last verification is too old, when it expires, and when the
configuration of keys changes. One task does that for all streams.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING

from anyio import Event, create_task_group, move_on_after

from bridge.server.auth.tokens import IssuerUnavailableError, TokenRefusedError, VerifiedToken
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp.server.auth.provider import AccessToken

    from bridge.server.auth.auth import Auth

_logger = logging.getLogger("bridge.server.auth")

VERIFY_SECONDS = 60.0
"""Seconds between verifications of a credential whose verifier sets no ``keep_seconds``."""

_MIN_VERIFY_SECONDS = 1.0
_MAX_STALE_ENTRIES = 16
"""Minimum length of the queue at which entries of closed streams are removed."""


class MonitoredCredential:
    """A verified credential and its open streams."""

    __slots__ = ("_monitor", "credential", "due", "ends", "token")

    def __init__(self, monitor: CredentialMonitor, credential: str, token: AccessToken) -> None:
        self._monitor = monitor
        self.credential = credential
        self.token = token
        """The token of the last verification."""
        self.due = math.inf
        """Time of the next verification; infinite while one runs."""
        self.ends: dict[object, Callable[[], object]] = {}
        """Functions that end the open streams."""

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Iterator[None]:
        """Context in which a stream is open.

        Args:
            end: Called once when the credential is no longer valid; the stream may still send pending responses.
        """
        stream = object()
        self.ends[stream] = end
        self._monitor.opened(self)
        try:
            yield
        finally:
            self.ends.pop(stream, None)
            self._monitor.closed(self)


class CredentialMonitor:
    """Verifies the credentials of open streams again.

    Args:
        auth: Verifies credentials; when it changes, all are verified again.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._open: set[MonitoredCredential] = set()
        self._queue: list[tuple[float, int, MonitoredCredential]] = []
        self._order = count()
        self._next = -math.inf
        self._woken = Event()
        auth.on_change(self._verify_all)

    def __len__(self) -> int:
        return len(self._open)

    async def keep(self) -> None:
        """End streams whose credentials are no longer valid; runs until cancelled."""
        async with create_task_group() as tasks:
            while True:
                self._woken = Event()
                now = monotonic()
                while self._queue and self._queue[0][0] <= now:
                    due, _, monitored = heappop(self._queue)
                    if monitored in self._open and monitored.due == due:
                        monitored.due = math.inf
                        tasks.start_soon(self._verify, monitored)
                self._next = self._queue[0][0] if self._queue else math.inf
                with move_on_after(self._next - now):
                    await self._woken.wait()

    def opened(self, monitored: MonitoredCredential) -> None:
        """Add the credential of an opened stream, and verify it at once, in case it was revoked meanwhile."""
        if monitored not in self._open:
            self._open.add(monitored)
            self._schedule(monitored, monotonic())

    def closed(self, monitored: MonitoredCredential) -> None:
        """Remove a credential whose last stream has ended."""
        if not monitored.ends:
            self._open.discard(monitored)

    def _schedule(self, monitored: MonitoredCredential, due: float) -> None:
        monitored.due = due
        if due < math.inf:
            if len(self._queue) > max(_MAX_STALE_ENTRIES, 2 * len(self._open)):  # remove entries of closed streams
                self._queue = [each for each in self._queue if each[2] in self._open and each[2].due == each[0]]
                heapify(self._queue)
            heappush(self._queue, (due, next(self._order), monitored))
            if due < self._next:
                self._woken.set()

    def _verify_all(self) -> None:
        now = monotonic()
        for monitored in self._open:
            self._schedule(monitored, now)

    async def _verify(self, monitored: MonitoredCredential) -> None:
        seconds = await self._seconds_left(monitored)
        if seconds is None:
            self._end(monitored)
        elif monitored in self._open and monitored.due == math.inf:  # else it was scheduled again meanwhile
            self._schedule(monitored, monotonic() + seconds)

    async def _seconds_left(self, monitored: MonitoredCredential) -> float | None:
        """Verify a credential; return the seconds until its next verification, or None if it is invalid."""
        try:
            found = await self._auth.verify_token(monitored.credential)
        except TokenRefusedError:
            return None
        except IssuerUnavailableError as error:
            return _seconds_left_unverified(monitored.token, error)
        except Exception:
            _logger.exception("a credential could not be verified again, and its streams end")
            return None
        if found is None or self._bearer(found) != self._bearer(monitored.token):
            return None
        if self._auth.required_scopes.difference(found.scopes):
            return None  # scopes of tools are checked with each request
        monitored.token = found
        left = _seconds_until_expiry(found)
        kept = found.keep_seconds if isinstance(found, VerifiedToken) and found.keep_seconds > 0 else VERIFY_SECONDS
        return None if left <= 0 else min(left, max(kept, _MIN_VERIFY_SECONDS))

    def _bearer(self, token: AccessToken) -> tuple[str, str]:
        return self._auth.name_of(token), token.client_id

    def _end(self, monitored: MonitoredCredential) -> None:
        self._open.discard(monitored)
        ends, monitored.ends = monitored.ends, {}
        if ends:
            name = self._auth.name_of(monitored.token)
            message = "ended the open streams of %r, %d: the credential that opened them is no longer valid"
            _logger.info(message, clip(name), len(ends))
        for end in ends.values():
            end()


def _seconds_left_unverified(token: AccessToken, error: IssuerUnavailableError) -> float | None:
    """Return the seconds for which a credential stays valid while its issuer is unavailable; None if it does not.

    A token stays valid until it expires. A key does not: if an issuer had to be asked, the key has been removed.
    """
    left = _seconds_until_expiry(token)
    is_key = isinstance(token, VerifiedToken) and token.is_key
    return None if is_key or left <= 0 else min(left, error.retry_after_seconds)


def _seconds_until_expiry(token: AccessToken) -> float:
    return math.inf if token.expires_at is None else token.expires_at - time.time()

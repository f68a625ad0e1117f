"""Tenures: how long the credentials hold by which streams were opened, so that no stream outlives its own.

A request is answered soon, and its credential was good when it came. A stream goes on: its credential is looked at
again when the verdict on it is as old as verdicts become, when it expires, and when others count from now on. One task
does that for all streams; nothing is asked while none is open.
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

LOOK_SECONDS = 60.0
"""How often a credential is looked at whose verifier does not say how long its verdicts may be kept."""

_LOOK_AT_MOST_EVERY_SECONDS = 1.0
_FEW = 16
"""So many looks ahead may be for nothing."""


class MonitoredCredential:
    """One credential, as it was found good.

    Args:
        tenures: All of them.
        credential: What the caller sent.
        token: What it was found to be.
    """

    __slots__ = ("_tenures", "credential", "due", "ends", "token")

    def __init__(self, tenures: CredentialMonitor, credential: str, token: AccessToken) -> None:
        self._tenures = tenures
        self.credential = credential
        self.token = token
        """What it was found to be when it was last looked at."""
        self.due = math.inf
        """When it is looked at again; never, while it is."""
        self.ends: dict[object, Callable[[], object]] = {}
        """What ends each of the streams that are open by it."""

    @contextmanager
    def ending(self, end: Callable[[], object]) -> Iterator[None]:
        """The time during which a stream is open.

        Args:
            end: Called once when the credential holds no more; what then still has to be answered may be.
        """
        stream = object()
        self.ends[stream] = end
        self._tenures.opened(self)
        try:
            yield
        finally:
            self.ends.pop(stream, None)
            self._tenures.closed(self)


class CredentialMonitor:
    """The credentials by which streams are open.

    Args:
        auth: What finds them good; when it changes, all are looked at.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._open: set[MonitoredCredential] = set()
        self._queue: list[tuple[float, int, MonitoredCredential]] = []
        self._order = count()
        self._next = -math.inf
        self._woken = Event()
        auth.on_change(self._look_at_all)

    def __len__(self) -> int:
        return len(self._open)

    async def keep(self) -> None:
        """End streams as their credentials come to hold no more; runs until it is cancelled."""
        async with create_task_group() as tasks:
            while True:
                self._woken = Event()
                now = monotonic()
                while self._queue and self._queue[0][0] <= now:
                    due, _, tenure = heappop(self._queue)
                    if tenure in self._open and tenure.due == due:
                        tenure.due = math.inf
                        tasks.start_soon(self._look, tenure)
                self._next = self._queue[0][0] if self._queue else math.inf
                with move_on_after(self._next - now):
                    await self._woken.wait()

    def opened(self, tenure: MonitoredCredential) -> None:
        """A stream was opened. What changed since its credential was found good is seen at once."""
        if tenure not in self._open:
            self._open.add(tenure)
            self._schedule(tenure, monotonic())

    def closed(self, tenure: MonitoredCredential) -> None:
        """A stream has ended."""
        if not tenure.ends:
            self._open.discard(tenure)

    def _schedule(self, tenure: MonitoredCredential, due: float) -> None:
        tenure.due = due
        if due < math.inf:
            if len(self._queue) > max(_FEW, 2 * len(self._open)):
                self._forget_the_closed()
            heappush(self._queue, (due, next(self._order), tenure))
            if due < self._next:
                self._woken.set()

    def _forget_the_closed(self) -> None:
        """Let go of the credentials whose streams have ended before they were to be looked at again."""
        self._queue = [each for each in self._queue if each[2] in self._open and each[2].due == each[0]]
        heapify(self._queue)

    def _look_at_all(self) -> None:
        now = monotonic()
        for tenure in self._open:
            self._schedule(tenure, now)

    async def _look(self, tenure: MonitoredCredential) -> None:
        seconds = await self._seconds_left(tenure)
        if seconds is None:
            self._end(tenure)
        elif tenure in self._open and tenure.due == math.inf:  # else something changed meanwhile
            self._schedule(tenure, monotonic() + seconds)

    async def _seconds_left(self, tenure: MonitoredCredential) -> float | None:
        """How long a credential holds without being looked at again; None where it does not."""
        try:
            found = await self._auth.verify_token(tenure.credential)
        except TokenRefusedError:
            return None
        except IssuerUnavailableError as error:
            return _seconds_left_unasked(tenure.token, error)
        except Exception:
            _logger.exception("a credential could not be looked at again, and its streams end")
            return None
        if found is None or self._bearer(found) != self._bearer(tenure.token):
            return None
        if self._auth.required_scopes.difference(found.scopes):
            return None  # other scopes, and other tools, are seen with each request
        tenure.token = found
        left = _seconds_until_expiry(found)
        kept = found.keep_seconds if isinstance(found, VerifiedToken) and found.keep_seconds > 0 else LOOK_SECONDS
        return None if left <= 0 else min(left, max(kept, _LOOK_AT_MOST_EVERY_SECONDS))

    def _bearer(self, token: AccessToken) -> tuple[str, str]:
        """Who bears a credential, and for which client."""
        return self._auth.name_of(token), token.client_id

    def _end(self, tenure: MonitoredCredential) -> None:
        self._open.discard(tenure)
        ends, tenure.ends = tenure.ends, {}
        if ends:
            name = self._auth.name_of(tenure.token)
            told = "ended the open streams of %r, %d: the credential that opened them holds no more"
            _logger.info(told, clip(name), len(ends))
        for end in ends.values():
            end()


def _seconds_left_unasked(token: AccessToken, error: IssuerUnavailableError) -> float | None:
    """How long a credential holds of which nobody can tell; None where it does not.

    What an issuer found good is not taken back by its silence, and ends when the issuer said. A key is known here:
    where an issuer would have to be asked about it, it is among the keys no more.
    """
    left = _seconds_until_expiry(token)
    is_key = isinstance(token, VerifiedToken) and token.is_key
    return None if is_key or left <= 0 else min(left, error.retry_after_seconds)


def _seconds_until_expiry(token: AccessToken) -> float:
    return math.inf if token.expires_at is None else token.expires_at - time.time()

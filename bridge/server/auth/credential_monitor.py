"""Credential monitor: ends open streams whose credentials expire or are revoked.

The credential of a stream is verified again when its last verification is too old, when it expires, and when the
configuration of keys changes.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from anyio import CancelScope, Event, create_task_group, move_on_after, sleep_forever

from bridge.portal import call_soon_here
from bridge.server.auth.tokens import IssuerUnavailableError, TokenRefusedError, VerifiedToken
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from anyio.abc import TaskGroup
    from mcp.server.auth.provider import AccessToken

    from bridge.server.auth.access import Access, Restricted
    from bridge.server.auth.auth import Auth

_logger = logging.getLogger("bridge.server.auth")

VERIFY_SECONDS = 60.0
"""Seconds between verifications of a credential whose verifier sets no ``keep_seconds``."""

_MIN_VERIFY_SECONDS = 1.0


class MonitoredCredential:
    """A verified credential and its open streams."""

    __slots__ = ("_monitor", "credential", "ends", "token", "watching")

    def __init__(self, monitor: CredentialMonitor, credential: str, token: AccessToken) -> None:
        self._monitor = monitor
        self.credential = credential
        self.token = token
        """The token of the last verification."""
        self.ends: dict[object, tuple[Callable[[], object], Restricted | None]] = {}
        """Functions that end the open streams, and the profiles that those are of."""
        self.watching = CancelScope()
        """Scope of the task that verifies it again, while there are streams."""

    @property
    def access(self) -> Access:
        """Permissions of the bearer, by the last verification."""
        return self._monitor.access_of(self.token)

    @contextmanager
    def ending(self, end: Callable[[], object], profile: Restricted | None = None) -> Iterator[None]:
        """Context in which a stream is open.

        Args:
            end: Called once when the credential is no longer valid, or no longer gives the profile; the stream may
                still send pending responses.
            profile: The profile that the stream is of; None for none.
        """
        stream = object()
        self.ends[stream] = end, profile
        self._monitor.opened(self)
        try:
            yield
        finally:
            self.ends.pop(stream, None)
            self._monitor.closed(self)


class CredentialMonitor:
    """Verifies the credentials of open streams again, all of them when `Auth` changes."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._open: set[MonitoredCredential] = set()
        self._tasks: TaskGroup | None = None
        self._changed = Event()
        self._call_soon: Callable[[Callable[[], None]], object] = lambda _: None
        auth.on_change(self._verify_all)

    def access_of(self, token: AccessToken) -> Access:
        """Return the permissions of the bearer of a credential."""
        return self._auth.access_of(token)

    def __len__(self) -> int:
        return len(self._open)

    async def keep(self) -> None:
        """End streams whose credentials are no longer valid; runs until cancelled."""
        self._call_soon = call_soon_here()
        async with create_task_group() as self._tasks:
            for monitored in self._open:
                self._tasks.start_soon(self._watch, monitored, monitored.watching)
            await sleep_forever()

    def opened(self, monitored: MonitoredCredential) -> None:
        """Watch the credential of an opened stream; verify it at once, in case it was revoked meanwhile."""
        if monitored not in self._open:
            self._open.add(monitored)
            monitored.watching = CancelScope()
            if self._tasks is not None:
                self._tasks.start_soon(self._watch, monitored, monitored.watching)

    def closed(self, monitored: MonitoredCredential) -> None:
        """Do not watch a credential whose last stream has ended."""
        if not monitored.ends:
            self._open.discard(monitored)
            monitored.watching.cancel()

    def _verify_all(self) -> None:
        """Verify every credential, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._call_soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = Event()

    async def _watch(self, monitored: MonitoredCredential, scope: CancelScope) -> None:
        with scope:
            while True:
                changed = self._changed  # before the verification, so that a change meanwhile counts
                seconds = await self._seconds_left(monitored)
                if seconds is None:
                    break
                with move_on_after(seconds):
                    await changed.wait()
            self._end(monitored)

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
        self._end_withdrawn(monitored)
        left = _seconds_until_expiry(found)
        kept = found.keep_seconds if isinstance(found, VerifiedToken) and found.keep_seconds > 0 else VERIFY_SECONDS
        return None if left <= 0 else min(left, max(kept, _MIN_VERIFY_SECONDS))

    def _bearer(self, token: AccessToken) -> tuple[str, str, tuple[str, ...] | None]:
        """Return to whom a credential belongs, and its profiles, of which an open stream is one."""
        return self._auth.name_of(token), token.client_id, self._auth.access_of(token).profiles

    def _end(self, monitored: MonitoredCredential) -> None:
        self._open.discard(monitored)
        self._end_streams(monitored, tuple(monitored.ends), "the credential that opened them is no longer valid")

    def _end_withdrawn(self, monitored: MonitoredCredential) -> None:
        """End the streams of profiles that a credential, still valid, no longer gives."""
        token, profiles = monitored.token, monitored.access.profiles
        lost = [
            stream
            for stream, (_, profile) in monitored.ends.items()
            if profile is not None and not profile.is_given_to(token, profiles)
        ]
        self._end_streams(monitored, lost, "their profile is no longer given to it")

    def _end_streams(self, monitored: MonitoredCredential, streams: Sequence[object], why: str) -> None:
        if streams:
            name = clip(self._auth.name_of(monitored.token))
            _logger.info("ended the open streams of %r, %d: %s", name, len(streams), why)
        for end, _ in [monitored.ends.pop(each) for each in streams]:
            end()


def _seconds_left_unverified(token: AccessToken, error: IssuerUnavailableError) -> float | None:
    """Return the seconds for which a token stays valid while its issuer is unavailable; None if it does not."""
    left = _seconds_until_expiry(token)
    # If an issuer had to be asked about a key, the key has been removed.
    is_key = isinstance(token, VerifiedToken) and token.is_key
    return None if is_key or left <= 0 else min(left, error.retry_after_seconds)


def _seconds_until_expiry(token: AccessToken) -> float:
    return math.inf if token.expires_at is None else token.expires_at - time.time()

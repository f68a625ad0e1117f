"""Keeping of credentials for all processes of a gateway: waiting for them, and renewal by one at a time."""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.client.auth.login import Login
    from bridge.gateway.credentials.store import Credential, CredentialKey, CredentialRecord, CredentialStore

RENEWAL_SECONDS = 60.0
"""Seconds after which the right to renew a credential ends by itself, as its holder may have died."""
_ARRIVAL_SECONDS = 1.0
"""Seconds after which a waiting call looks for a credential that another process has kept."""
_TURN_SECONDS = 0.05
"""Seconds between attempts to take the right to renew, which another process has."""
_logger = logging.getLogger("bridge.gateway")


class CredentialKeeper:
    """Keeps the credentials of a gateway's callers.

    Args:
        store: The store; it is opened and closed by its owner.
    """

    def __init__(self, store: CredentialStore) -> None:
        self.store = store
        """The store, also for values that are used once."""
        self._changed = anyio.Event()
        self._listeners: list[Callable[[CredentialKey], None]] = []
        self._locks: WeakValueDictionary[CredentialKey, anyio.Lock] = WeakValueDictionary()

    def on_change(self, listener: Callable[[CredentialKey], None]) -> None:
        """Call a listener after a caller has got or lost a credential in this process."""
        self._listeners.append(listener)

    async def load(self, key: CredentialKey) -> Credential | None:
        """Return a credential; None if there is none.

        Raises:
            CredentialStoreError: The store cannot be read.
        """
        return await self.store.get(key)

    async def save(self, key: CredentialKey, credential: Credential) -> None:
        """Keep a credential that its caller has just given or obtained, and let the calls that wait for it go on.

        Raises:
            CredentialStoreError: The store cannot be written.
        """
        async with self.renewing(key):  # a renewal of an earlier one must not replace it
            await self.store.put(key, credential)
        _logger.info("%r has connected the server %r (%s)", key.subject, key.server, credential.kind)
        self._changed.set()
        self._changed = anyio.Event()
        self._notify(key)

    async def renewed(self, key: CredentialKey, login: Login) -> None:
        """Keep the renewal of a login; one whose tokens have ended is deleted.

        Raises:
            CredentialStoreError: The store cannot be written.
        """
        if login.access_token is None:
            await self.store.delete(key)
        elif (credential := await self.store.get(key)) is not None:
            await self.store.update(key, credential.model_copy(update={"login": login}))

    async def drop(self, key: CredentialKey, value: str | None) -> None:
        """Delete a credential that its server refuses, unless it was replaced meanwhile.

        Args:
            key: Caller and server.
            value: The access token or secret that was refused.

        Raises:
            CredentialStoreError: The store cannot be written.
        """
        async with self.renewing(key):
            credential = await self.store.get(key)
            if credential is not None and credential.value in {None, value}:
                await self.store.delete(key)
                _logger.info("the server %r has refused the credential of %r", key.server, key.subject)
                self._notify(key)

    async def arrived(self, key: CredentialKey, *, after: float = 0.0) -> None:
        """Wait until there is a usable credential, also one that another process has kept.

        Args:
            key: Caller and server.
            after: `Credential.made_at` of the credential that it replaces; 0 for any.

        Raises:
            CredentialStoreError: The store cannot be read.
        """
        while True:
            changed = self._changed
            credential = await self.store.get(key)
            if credential is not None and credential.value is not None and credential.made_at > after:
                return
            with anyio.move_on_after(_ARRIVAL_SECONDS):
                await changed.wait()

    async def list(self, issuer: str, subject: str) -> Sequence[CredentialRecord]:
        """Return what a caller has connected.

        Raises:
            CredentialStoreError: The store cannot be read.
        """
        return await self.store.list(issuer=issuer, subject=subject)

    def _notify(self, key: CredentialKey) -> None:
        for listener in tuple(self._listeners):
            listener(key)

    @asynccontextmanager
    async def renewing(self, key: CredentialKey) -> AsyncIterator[None]:
        """Hold the exclusive right to change a credential, among all processes, during this block.

        Raises:
            CredentialStoreError: The store cannot be used.
        """
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = anyio.Lock()
        async with lock:
            holder = secrets.token_hex(8)
            while not await self.store.acquire(key, holder, RENEWAL_SECONDS):  # noqa: ASYNC110 - another process has it
                await anyio.sleep(_TURN_SECONDS)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self.store.release(key, holder)

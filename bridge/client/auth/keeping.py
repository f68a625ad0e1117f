"""Keeping: the login to one server where it is kept, and what is done where it cannot be."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bridge.client.auth.errors import SignInError
from bridge.errors import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.client.auth.login import Login
    from bridge.client.auth.store import Logins

_logger = logging.getLogger("bridge.client")


class Keeping:
    """Where the login to one server is kept.

    Args:
        logins: Where all of them are.
        key: Which of them it is.
        shown: The server, as it may be shown.
        hint: What a person should do where what is kept is no login.
    """

    def __init__(self, logins: Logins, key: str, *, shown: str, hint: str | None) -> None:
        self._logins = logins
        self._key = key
        self._shown = shown
        self._hint = hint

    async def load(self) -> Login | None:
        """The login; None for none.

        Raises:
            SignInError: It cannot be read.
        """
        try:
            return await self._logins.load(self._key)
        except WireError as error:
            raise SignInError(str(error), hint=self._hint) from error
        except OSError as error:
            raise SignInError(f"its login cannot be read: {error}") from error

    async def load_if_readable(self) -> Login | None:
        """The login; None for none, and for one that another is to take the place of: the store keeps it."""
        try:
            return await self.load()
        except SignInError:
            return None

    async def save(self, login: Login) -> None:
        """Keep a login; where that cannot be done, the log says so."""
        try:
            await self._logins.save(self._key, login)
        except OSError as error:
            _logger.warning("the login to %s cannot be kept: %s", self._shown, error)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """The time in which no other process renews it; where that cannot be had, the log says so."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._logins.locked(self._key))
            except OSError as error:
                _logger.warning("logins cannot be locked, and are renewed without: %s", error)
            yield

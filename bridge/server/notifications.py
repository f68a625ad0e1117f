"""Notifications of changes to the sessions of the handshake era, and what waits to be sent on one stream.

MCP 2025-11-25, "Tools", "Resources" and "Prompts", List Changed Notification; "Resources", Subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import anyio

from bridge.protocol.messages import notification
from bridge.protocol.subscriptions import Waiting, change_message
from bridge.server.auth.access import EVERYTHING
from bridge.server.auth.identity import current_access

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bridge.protocol.session import Session
    from bridge.server.auth.access import Access
    from bridge.server.changes import Change
    from bridge.server.core import ServerCore
    from bridge.server.lists.lists import Lists
    from bridge.tools.caller import Caller


class Pending:
    """Items to send on one stream, each once, for the task that sends them."""

    def __init__(self) -> None:
        self._waiting = Waiting()
        self._is_closed = False
        self._event = anyio.Event()

    def put(self, items: Iterable[Any]) -> None:
        """Add items, unless they wait already."""
        self._waiting.put([*items])
        if self._waiting:
            self._event.set()

    def put_one(self, item: Any) -> None:
        """Add an item, unless it waits already."""
        self.put((item,))

    def close(self) -> None:
        """End the iteration after the items that wait."""
        self._is_closed = True
        self._event.set()

    # Iteration over the items as they come. Trio complains of a generator that is cancelled while its reader waits.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while (item := self._waiting.take()) is None:
            if self._is_closed:
                raise StopAsyncIteration
            await self._event.wait()
            self._event = anyio.Event()
        return item


class SessionNotifications:
    """Notifications to one session of the handshake era, from ``notifications/initialized`` on: changes, and others.

    They wait while the session has no stream that could carry them.

    Args:
        core: The server.
        session: The session.
        caller: Its caller; None without authentication.
    """

    def __init__(self, core: ServerCore, session: Session, caller: Caller | None) -> None:
        self._session = session
        self._core = core
        self._caller = caller
        self._pending = Pending()
        session.notify = self._pending.put_one
        self.close = core.changes.listen(self._changed)
        """End the notifications."""

    def _changed(self, changes: frozenset[Change]) -> None:
        watched = self._session.watched
        wanted = (each for each in changes if each.uri is None or each.uri in watched)
        self._pending.put(each for each in wanted if each.is_for(self._caller))

    async def deliver(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the notifications as they come, until cancelled; on one stream at a time."""
        with current_access(self._core.profile) as access:
            async for change in self._pending:
                if isinstance(change, bytes):
                    if access() is not None:
                        await send(change)
                elif may_be_told(change, self._core.lists_for(self._caller) or self._core.lists, access()):
                    method, params = change_message(change.feature, change.uri)
                    await send(notification(method, params or None))


def may_be_told(change: Change, lists: Lists, access: Access | None) -> bool:
    """Return True if a caller may be notified of a change: its permissions may have shrunk since it asked.

    Args:
        change: The change.
        lists: The lists that the caller sees; those that all see if its own are not known now.
        access: Its permissions; None if its credential is no longer valid.
    """
    if access is None or access == EVERYTHING or change.uri is None:
        return access is not None
    return lists.resources is not None and lists.resources.is_readable(change.uri, access)

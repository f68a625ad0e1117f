"""Notifications of tasks: one ``subscriptions/listen`` for all tasks that the calls of a session wait for.

    call waits ──> one second ──> subscription ──> acknowledged ──> notification, or a rare poll ──> tasks/get
                                       ╰──> refused ─────────────> the interval that the server suggests ──> tasks/get

A notification only wakes the call, which asks for the state itself. MCP's extension ``io.modelcontextprotocol/tasks``
(SEP-2663), "Notifications".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio

from bridge.client.connection.subscriptions import listen
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError
from bridge.protocol.results import InvalidResultError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from anyio.abc import TaskStatus

    from bridge.client.connection.session import Session
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")

SETTLE_SECONDS = 1.0
"""Seconds for which a task is waited for without a subscription, and between two subscriptions."""
ACKNOWLEDGED_SECONDS = 5.0
"""Maximum seconds until a subscription is acknowledged."""
_IDS = "taskIds"


class TaskNotifications:
    """Wakes calls when tasks of their server may have changed.

    Args:
        session: The session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._awaited: dict[str, anyio.Event] = {}
        self._announced: AbstractSet[str] = frozenset()
        self._acknowledged = anyio.Event()
        self._joined = anyio.Event()
        self._is_listening = False
        self._is_refused = False

    async def changed(self, task_id: str, poll_seconds: float, most_seconds: float) -> None:
        """Wait until a task may have changed.

        Args:
            task_id: The task.
            poll_seconds: Time to wait while the server does not announce its changes.
            most_seconds: Time to wait while it does, if that is longer.
        """
        event = self._awaited.get(task_id)
        if event is None:
            event = self._awaited[task_id] = anyio.Event()
            self._joined.set()
        if not (self._is_listening or self._is_refused):
            self._is_listening = True
            self._session.start_soon(self._keep_listening)
        seconds = max(poll_seconds, most_seconds) if task_id in self._announced else poll_seconds
        with anyio.move_on_after(seconds):
            await event.wait()
        if event.is_set() and self._awaited.get(task_id) is event:
            self._awaited[task_id] = anyio.Event()

    def leave(self, task_id: str) -> None:
        """Forget a task that no call waits for any more."""
        if self._awaited.pop(task_id, None) is not None and not self._awaited:
            self._joined.set()

    def _receive(self, message: Json) -> None:
        """Handle a notification of a subscription."""
        params = message.get("params") or {}
        if message["method"] == "notifications/tasks":
            self._wake(params.get("taskId"))
            return
        honoured = params.get("notifications")
        ids = honoured.get(_IDS) if isinstance(honoured, dict) else None
        if message["method"] == "notifications/subscriptions/acknowledged" and isinstance(ids, list):
            before, self._announced = self._announced, frozenset(each for each in ids if isinstance(each, str))
            self._acknowledged.set()
            for each in self._announced - before:  # it may have changed before
                self._wake(each)

    def _wake(self, task_id: Any) -> None:
        if isinstance(task_id, str) and (event := self._awaited.get(task_id)) is not None:
            event.set()

    async def _keep_listening(self) -> None:
        """Listen while calls wait for tasks; a further task takes a new subscription, before the former one ends."""
        try:
            async with anyio.create_task_group() as tasks:
                former = anyio.CancelScope()
                listened: AbstractSet[str] = frozenset()
                while not self._is_refused:
                    self._joined = anyio.Event()
                    await anyio.sleep(SETTLE_SECONDS)
                    if not self._awaited:
                        break
                    if not self._awaited.keys() <= listened or not self._announced:
                        listened = frozenset(self._awaited)
                        current = await tasks.start(self._listen, listened)
                        former.cancel()
                        former = current
                    if not self._is_refused:
                        await self._joined.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._is_listening = False
            self._lose()

    async def _listen(self, ids: AbstractSet[str], *, task_status: TaskStatus[anyio.CancelScope]) -> None:
        """Subscribe to tasks; ``task_status`` gets the scope when that is acknowledged, or refused."""
        self._acknowledged = anyio.Event()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def confirm() -> None:
                    with anyio.move_on_after(ACKNOWLEDGED_SECONDS):
                        await self._acknowledged.wait()
                    self._is_refused = self._is_refused or not self._acknowledged.is_set()
                    task_status.started(scope)

                tasks.start_soon(confirm)
                try:
                    await listen(self._session, {_IDS: sorted(ids)}, self._receive)
                except (ProtocolError, PeerLostError, InvalidResultError) as error:
                    _logger.debug("a subscription to tasks has ended: %s", error)
                self._is_refused = not self._acknowledged.is_set()
                self._acknowledged.set()
            if not self._is_refused:
                self._session.suspect()
            self._lose()
            self._joined.set()

    def _lose(self) -> None:
        """Let all calls poll, because changes are not announced any more."""
        self._announced = frozenset()
        for event in self._awaited.values():
            event.set()

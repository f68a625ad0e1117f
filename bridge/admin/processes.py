"""State and actions of all processes of a server: this one, or all workers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from bridge.admin.actions import Outcome, joined
from bridge.admin.state import merged

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from bridge.admin.actions import AdminActions
    from bridge.admin.state import AdminState
    from bridge.hosting.child_process import WorkerChannel
    from bridge.types import Json

_logger = logging.getLogger("bridge.admin")
_OF_PARENT = frozenset({"drain", "reload"})
"""Actions that the parent does for all workers."""
_STATE, _ACTION = "admin state", "admin action"
ACTION_SECONDS = 4.0
"""Seconds that a worker may take for an action."""


class AdminProcesses:
    """The processes of one server.

    Args:
        state: The state of this process.
        actions: The actions of this process.
        channel: Channel to the other workers; None if this is the only process.
    """

    def __init__(self, state: AdminState, actions: AdminActions, channel: WorkerChannel | None) -> None:
        self._state, self._actions, self._channel = state, actions, channel
        self._loop: asyncio.AbstractEventLoop | None = None
        if channel is not None:
            channel.answers[_STATE] = lambda _: self._in_loop(self._own_state())
            channel.answers[_ACTION] = lambda question: self._in_loop(self._own_act(*question))

    def opened(self) -> None:
        """Answer questions of other workers from now on; called in the event loop that serves."""
        self._loop = asyncio.get_running_loop()

    async def state(self) -> Json:
        """Return the state of all processes."""
        if self._channel is None:
            return self._state.as_json()
        states = await anyio.to_thread.run_sync(self._channel.ask_all, _STATE)
        return merged(states) if states else self._state.as_json()

    async def act(self, action: str, target: str) -> Outcome:
        """Do an action in all processes that have its object."""
        if self._channel is None:
            return joined([await self._actions.act(action, target)], action, target)
        if action in _OF_PARENT:
            return joined([await self._actions.act(action, target)], action, target)
        answers = await anyio.to_thread.run_sync(self._channel.ask_all, _ACTION, [action, target])
        return joined([Outcome(**each) for each in answers.values()], action, target)

    async def _own_state(self) -> Json:
        return self._state.as_json()

    async def _own_act(self, action: str, target: str) -> Json:
        return (await self._actions.act(action, target)).as_json()

    def _in_loop(self, work: Coroutine[Any, Any, Json]) -> Json | None:
        """Run a coroutine in the event loop, and wait for it in the thread of the question."""
        if self._loop is None:
            work.close()
            return None
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(ACTION_SECONDS)
        except Exception:
            _logger.exception("a question of another worker was not answered")
            return None

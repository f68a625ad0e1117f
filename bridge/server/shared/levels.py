"""The log levels of sessions that any replica may answer for: said to one of them, and kept by all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.tools.context import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.cluster.replica import Link
    from bridge.server.log_levels import LogLevels
    from bridge.server.shared.alive import Alive
    from bridge.tools.context import LogLevel


class SharedLevels:
    """Keeps the level of a session in its record, and tells it to the replicas in which the session is alive.

    Args:
        levels: Those of the server that is served here.
        link: The way to the other replicas.
        keep: Keeps the record of a session that is alive here.
        find: Gives a session that is alive here, when it is not just being revived.
    """

    def __init__(
        self,
        levels: LogLevels,
        link: Link,
        keep: Callable[[Alive], Awaitable[None]],
        find: Callable[[str], Awaitable[Alive | None]],
    ) -> None:
        self._levels = levels
        self._keep = keep
        self._link = link
        self._find = find
        levels.on_change = self._said
        link.hear("log_level", self._heard)

    def revive(self, alive: Alive) -> None:
        """Let a session that comes to life here have the level that its client said elsewhere."""
        level = None if alive.record is None else alive.record.log_level
        if level is not None and alive.connection is not None and alive.connection.client_params is not None:
            self._levels.keep(alive.connection.client_params, level)

    async def tell(self, alive: Alive) -> None:
        """Tell other replicas the level of a session, of which they may know an earlier one.

        Raises:
            RedisError: Redis does not answer.
        """
        if alive.record is not None and alive.record.log_level is not None:
            await self._link.tell(_message(alive.record.id, alive.record.log_level))

    async def _said(self, session_id: str, level: LogLevel) -> None:
        alive = await self._find(session_id)
        if alive is None or alive.record is None:
            return
        alive.record = replace(alive.record, log_level=level)
        await self._keep(alive)
        if alive.is_kept:
            try:
                await self._link.tell_surely(_message(session_id, level))
            except self._link.failures as error:
                self._link.failed(error)

    async def _heard(self, message: Mapping[str, Any]) -> None:
        alive = await self._find(message["session"])
        if alive is not None and alive.record is not None and message["level"] in LOG_LEVELS:
            alive.record = replace(alive.record, log_level=message["level"])
            self.revive(alive)


def _message(session_id: str, level: LogLevel) -> dict[str, str]:
    return {"kind": "log_level", "session": session_id, "level": level}

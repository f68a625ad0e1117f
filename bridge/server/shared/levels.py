"""The log levels of sessions that any replica may answer for: said to one of them, and kept by all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridge.tools.context import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.log_levels import LogLevels
    from bridge.server.shared.alive import Alive
    from bridge.server.shared.link import Link
    from bridge.server.shared.records import Records
    from bridge.tools.context import LogLevel


class SharedLevels:
    """Keeps the level of a session in its record, and tells it to the replicas in which the session is alive.

    Args:
        levels: Those of the server that is served here.
        records: The records of all sessions.
        link: The way to the other replicas.
        find: Gives a session that is alive here, when it is not just being revived.
    """

    def __init__(
        self, levels: LogLevels, records: Records, link: Link, find: Callable[[str], Awaitable[Alive | None]]
    ) -> None:
        self._levels = levels
        self._records = records
        self._link = link
        self._find = find
        levels.on_change = self._said
        link.hear("log_level", self._heard)

    def revive(self, alive: Alive) -> None:
        """Let a session that comes to life here have the level that its client said elsewhere."""
        level = None if alive.record is None else alive.record.log_level
        if level is not None and alive.connection is not None and alive.connection.client_params is not None:
            self._levels.keep(alive.connection.client_params, level)

    async def _said(self, session_id: str, level: LogLevel) -> None:
        alive = await self._find(session_id)
        if alive is None or alive.record is None:
            return
        alive.record = replace(alive.record, log_level=level)
        try:
            await self._records.save(alive.record)
            await self._link.tell_surely({"kind": "log_level", "session": session_id, "level": level})
        except self._link.failures as error:
            self._link.failed(error)  # the record is saved when Redis is back

    async def _heard(self, message: Mapping[str, Any]) -> None:
        alive = await self._find(message["session"])
        if alive is not None and alive.record is not None and message["level"] in LOG_LEVELS:
            alive.record = replace(alive.record, log_level=message["level"])
            self.revive(alive)

"""Log levels: from which severity on each client of the handshake era wants to hear what tools log."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import finalize

from bridge.tools.context import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.tools.context import LogLevel


class LogLevels:
    """What clients have said by ``logging/setLevel``; who has said nothing hears all."""

    def __init__(self) -> None:
        self._levels: dict[int, LogLevel] = {}
        self.on_change: Callable[[str, LogLevel], Awaitable[None]] | None = None
        """Told of a session and its level when its client has said one, before the client has its answer."""

    def of(self, client: object) -> LogLevel:
        """The level of a client.

        Args:
            client: The SDK's record of the client, which lives as long as its connection: no end of one is told.
        """
        return self._levels.get(id(client), LOG_LEVELS[0])

    def keep(self, client: object, level: LogLevel) -> None:
        """Keep what a client has said, for as long as it is connected."""
        key = id(client)
        if key not in self._levels:
            finalize(client, self._levels.pop, key, None).atexit = False
        self._levels[key] = level

    def __len__(self) -> int:
        return len(self._levels)

"""``logging/setLevel`` (MCP 2025-11-25, "Logging"): the minimum severity of log messages to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import finalize

from bridge.server.methods.method import Method, session_id
from bridge.tools.context import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_types import EmptyResult, SetLevelRequestParams

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import HandlerRequest
    from bridge.tools.context import LogLevel


class LogLevels:
    """Log levels by client of the handshake era; a client without a level gets all messages."""

    def __init__(self) -> None:
        self._levels: dict[int, LogLevel] = {}
        self.on_change: Callable[[str, LogLevel], Awaitable[None]] | None = None
        """Called with a session's id and its new level, before the client is answered."""

    def of(self, client: object) -> LogLevel:
        """Return the level of a client.

        Args:
            client: The SDK's record of the client, which lives as long as its connection.
        """
        return self._levels.get(id(client), LOG_LEVELS[0])

    def keep(self, client: object, level: LogLevel) -> None:
        """Store the level of a client for as long as it is connected."""
        key = id(client)
        if key not in self._levels:
            finalize(client, self._levels.pop, key, None).atexit = False
        self._levels[key] = level

    def __len__(self) -> int:
        return len(self._levels)


class SetLevel(Method):
    """Sets the log level of a client of the handshake era; modern requests contain their own."""

    name = "logging/setLevel"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self.levels = LogLevels()
        """The log levels of the clients."""

    def params_type(self) -> type[SetLevelRequestParams]:
        """Return the type of the parameters: a level."""
        from mcp_types import SetLevelRequestParams

        return SetLevelRequestParams

    async def handle(self, request: HandlerRequest, params: SetLevelRequestParams) -> EmptyResult:
        """Store the level."""
        from mcp_types import EmptyResult

        client, session = request.sdk.session.client_params, session_id(request.sdk)
        if client is not None:
            self.levels.keep(client, params.level)
        if session is not None and self.levels.on_change is not None:
            await self.levels.on_change(session, params.level)
        return EmptyResult()

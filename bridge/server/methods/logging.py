"""``logging/setLevel`` (MCP 2025-11-25, "Logging"): the minimum severity of log messages to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.server.client_values import ClientValues
from bridge.server.methods.method import Method, session_id
from bridge.tools.channel import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_types import EmptyResult, SetLevelRequestParams

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import HandlerRequest


class LogLevels(ClientValues[LogLevel]):
    """Log levels by client of the handshake era; a client without a level gets all messages."""

    def __init__(self) -> None:
        super().__init__(lambda: LOG_LEVELS[0])
        self.on_change: Callable[[str, LogLevel], Awaitable[None]] | None = None
        """Called with a session's id and its new level, before the client is answered."""


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

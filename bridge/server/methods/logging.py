"""``logging/setLevel`` (MCP 2025-11-25, "Logging"): the minimum severity of log messages to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.protocol.envelope import invalid_params
from bridge.server.methods.method import HANDSHAKE, Method
from bridge.types import LOG_LEVELS

if TYPE_CHECKING:
    from bridge.server.exchange import ServedExchange


class SetLevel(Method):
    """Sets the log level of a session; modern requests contain their own."""

    name = "logging/setLevel"
    eras = HANDSHAKE
    needs_session = True
    waits_for_start = False

    def plan(self, exchange: ServedExchange) -> bytes | None:
        """Store the level; a session that replicas share is stored in `run`."""
        level, session = exchange.params.get("level"), exchange.session
        if level not in LOG_LEVELS:
            raise invalid_params(f"'level' must be one of {', '.join(LOG_LEVELS)}")
        assert session is not None, "it needs one"
        session.log_level = level
        return b"{}" if self._core.on_session_change is None else None

    async def run(self, exchange: ServedExchange) -> bytes:
        """Store the level with the session."""
        if exchange.session is not None and self._core.on_session_change is not None:
            await self._core.on_session_change(
                exchange.session, {"kind": "log_level", "level": exchange.params["level"]}
            )
        return exchange.write({})

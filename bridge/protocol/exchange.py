"""Exchange: one request under way, and the messages that are written for it before its answer.

    request ─> progress · log message · question … ─> result or error

MCP 2025-11-25 and 2026-07-28, "Progress", "Logging".
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bridge.protocol.messages import ErrorAnswer, ProtocolError, id_as_json, write_json
from bridge.protocol.versions import LOG_LEVEL_KEY
from bridge.types import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.protocol.messages import MessageId
    from bridge.protocol.session import Session
    from bridge.types import Json

_NO_META: Json = {}
_LARGEST = sys.float_info.max


class Exchange:
    """One request under way.

    Args:
        message_id: Id of the request.
        method: Its method.
        params: Its parameters; empty if it has none.
        version: Protocol version; empty if unknown.
        modern: True for the modern era.
        capabilities: Capabilities of the client.
        session: The client's session in the handshake era; None without one.
    """

    # Attributes of the class, since each one of an instance takes time in every request.
    is_over = False
    """True once it is answered: nothing more is written for it."""
    _progress = float("-inf")

    def __init__(
        self,
        message_id: MessageId,
        method: str,
        params: Json,
        version: str,
        modern: bool,
        capabilities: Mapping[str, Any],
        session: Session | None = None,
    ) -> None:
        self.id = message_id
        self.method = method
        self.params = params
        self.version = version
        self.modern = modern
        self.capabilities = capabilities
        self.session = session

    @property
    def meta(self) -> Json:
        """``_meta`` of the request; empty without one."""
        meta: Json = self.params.get("_meta") or _NO_META
        return meta

    @property
    def log_level(self) -> LogLevel | None:
        """Minimum severity of the log messages that the client wants; None for none."""
        if self.modern:
            level: LogLevel | None = self.meta.get(LOG_LEVEL_KEY)
            return level
        return None if self.session is None else self.session.log_level

    def progress(self, progress: float, total: float | None, message: str | None) -> bytes | None:
        """Write progress; None if the client did not ask for it, or if it is not finite, or does not increase.

        Raises:
            ValueError: The message cannot be written as JSON.
        """
        meta = self.meta
        is_higher = abs(progress) <= _LARGEST and progress > self._progress
        if self.is_over or "progressToken" not in meta or not is_higher:
            if message is not None:
                write_json(message)  # fails whether the client has asked for it or not
            return None
        params: Json = {"progress": progress}
        if total is not None and abs(total) <= _LARGEST:
            params["total"] = total
        if message is not None:
            params["message"] = message
        members = write_json(params)[1:]
        self._progress = progress
        beginning = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'
        return b"%b%b,%b}" % (beginning, id_as_json(meta["progressToken"]), members)

    def log(self, level: LogLevel, data: Any, logger: str | None) -> bytes | None:
        """Write a log message; None if the client does not want messages of its severity.

        Raises:
            ValueError: It cannot be written as JSON.
        """
        least = self.log_level
        if self.is_over or least is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(least):
            return None
        params: Json = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return b'{"jsonrpc":"2.0","method":"notifications/message","params":%b}' % write_json(params)

    def refusal(self, error: ProtocolError) -> ErrorAnswer:
        """Write the answer that is an error."""
        return ErrorAnswer.of(self.id, error)

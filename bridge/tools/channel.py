"""Channel: the connection from a running function back to its caller, and the channel without a remote caller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from bridge.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.questions import Answer, Question

_logger = logging.getLogger("bridge.tools")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severities of RFC 5424, as MCP names them."""
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""The severities in ascending order."""


class Channel(Protocol):
    """Connection back to the caller while a call runs."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress; ignored if the caller did not request it."""
        ...

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message; ignored if the caller did not request log messages."""
        ...

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Send questions to the caller and return the answers under the same keys.

        Raises:
            InputRequired: The answers arrive only when the call is run again.
            ToolError: The caller cannot answer questions of this kind.
        """
        ...


class ContentsStream(Protocol):
    """Way of large contents of a resource to the caller of a read, before the read has ended."""

    local: Callable[[str], str] | None
    """Returns the caller's URI for one in the contents; None as long as contents may not be sent in parts."""

    def begin(self, length_bytes: int | None) -> bool:
        """Begin the result, after which its call has nothing else to send; return False if it has to be held whole.

        Args:
            length_bytes: Length of the answer that the contents come from; None if it is unknown.

        Raises:
            Exception: The result is too long.
        """
        ...

    async def write(self, text: bytes) -> None:
        """Send the next part of the result as JSON, once the caller has read enough of the parts before.

        Raises:
            Exception: The result is too long.
        """
        ...


ProgressListener = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives the arguments of `InvocationContext.progress`."""


class LocalChannel:
    """Channel without a remote caller: discards progress, writes log messages to `logging`, refuses questions."""

    has_listener = False

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Discard the progress report."""

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Write the message to this process's log."""
        severity = getattr(logging, level.upper(), logging.INFO if level == "notice" else logging.CRITICAL)
        (logging.getLogger(logger) if logger else _logger).log(severity, "%s", data)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:  # noqa: ARG002 - the protocol's
        """Refuse the questions."""
        raise ToolError("this tool needs to ask something, and its caller cannot be asked")

"""Channel: the connection from a running function back to its caller, and the channel without a remote caller."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import ToolError
from bridge.types import LOG_LEVELS, Json, LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.questions import Answer, Question
    from bridge.tools.session import SessionState

__all__ = ["LOG_LEVELS", "Channel", "ContentsStream", "LocalChannel", "LogLevel", "ProgressListener"]

_logger = logging.getLogger("bridge.tools")
_NO_ANSWERS: Mapping[str, Json] = MappingProxyType({})


class Channel:
    """Connection back to the caller while a call runs. Each method does nothing unless a subclass does it."""

    has_listener: bool = True
    """True if progress and log messages may reach a remote caller; otherwise they stay in this process."""

    @property
    def wants_logs(self) -> bool:
        """True if a remote caller may want log messages."""
        return self.has_listener

    @property
    def peer(self) -> object | None:
        """Identifies the remote client across its calls; None if it is unknown."""
        return None

    @property
    def session(self) -> SessionState | None:
        """State of the caller's session; None if it has none."""
        return None

    @property
    def contents_stream(self) -> ContentsStream | None:
        """Way of large contents of a resource to the caller before the read has ended; None if there is none."""
        return None

    @property
    def answers(self) -> Mapping[str, Json]:
        """Answers that the caller has sent with its request, by key, in MCP's JSON."""
        return _NO_ANSWERS

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress; ignored if the caller did not request it."""

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message; ignored if the caller did not request log messages."""

    async def notify(self, method: str, params: Json) -> None:
        """Send a notification of an extension; ignored without a remote caller."""

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:  # noqa: ARG002 - for subclasses
        """Send questions to the caller and return the answers under the same keys.

        Raises:
            InputRequired: The answers arrive only when the call is run again.
            ToolError: The caller cannot answer questions of this kind.
        """
        raise ToolError("this tool needs to ask something, and its caller cannot be asked")

    async def start_task(self) -> None:
        """Answer the caller with a task, if that is possible."""

    async def ends_request(self) -> bool:
        """Return True if the result answers the caller's request; the call becomes no task then."""
        return True

    async def close_stream(self) -> None:
        """Close the stream that waits for the result, if the caller can resume it."""


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


class LocalChannel(Channel):
    """Channel without a remote caller: discards progress, writes log messages to `logging`, refuses questions."""

    has_listener = False

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Write the message to this process's log."""
        severity = getattr(logging, level.upper(), logging.INFO if level == "notice" else logging.CRITICAL)
        (logging.getLogger(logger) if logger else _logger).log(severity, "%s", data)

"""Log records as lines of JSON, as those who collect logs read them."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from pydantic_core import to_json

from bridge.cli.tracebacks import UsersTracebackFormatter


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON: when, how severe, by whom and what; and the traceback.

    Args:
        shows_all_frames: Let tracebacks have all frames, and not the user's alone.
    """

    def __init__(self, *, shows_all_frames: bool) -> None:
        super().__init__()
        self._tracebacks = logging.Formatter() if shows_all_frames else UsersTracebackFormatter()

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        told = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self._tracebacks.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = record.stack_info
        return to_json(told, fallback=repr).decode()


def message_as_json(message: str) -> str:
    """A message of the command's own as one line of JSON, like a log record."""
    now = datetime.now(UTC).timestamp()
    return to_json({"time": _iso(now), "level": "info", "logger": "bridge.cli", "message": message}).decode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")

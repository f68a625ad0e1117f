"""Log records as lines of JSON, as those who collect logs read them."""

from __future__ import annotations

import logging
from time import time

from bridge.cli.tracebacks import UsersTracebackFormatter
from bridge.text import clip, escaped_json, to_json_line, utc_time

MAX_MESSAGE_CHARS = 8 * 1024
"""How much of a message is written: callers have their say in some."""
MAX_TRACEBACK_CHARS = 32 * 1024
"""How much of a traceback is written, its beginning and its end: an exception may quote what came."""


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
            "time": utc_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clip(record.getMessage(), MAX_MESSAGE_CHARS),
        }
        if record.exc_info:
            told["exception"] = _ends_of(self._tracebacks.formatException(record.exc_info))
        if record.stack_info:
            told["stack"] = record.stack_info
        return escaped_json(to_json_line(told))


def message_as_json(message: str, level: str, traceback: str | None) -> str:
    """A message of the command's own as one line of JSON, like a log record."""
    told = {"time": utc_time(time()), "level": level, "logger": "bridge.cli", "message": message}
    return escaped_json(to_json_line(told if traceback is None else told | {"exception": _ends_of(traceback)}))


def _ends_of(traceback: str) -> str:
    half = MAX_TRACEBACK_CHARS // 2
    return traceback if len(traceback) <= MAX_TRACEBACK_CHARS else f"{traceback[:half]}\n…\n{traceback[-half:]}"

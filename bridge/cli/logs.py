"""Logging of a command: to standard error, quiet about what others log of themselves."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from bridge.cli.options import option
from bridge.cli.tracebacks import UsersTracebackFormatter
from bridge.hosting.process import set_message_format
from bridge.telemetry.repetitions import Repetitions
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS = ("debug", "info", "warning", "error", "critical")
"""The levels that ``--log-level`` takes."""

_ABOUT_REQUESTS = ("uvicorn.", "opentelemetry.")
"""Loggers of libraries that log a line for each bad request."""

_FORMAT = "%(levelname)s %(name)s: %(message)s"


class _VisibleHandler(logging.StreamHandler[TextIO]):
    """Writes what is logged, of which others may have chosen the words, as something to look at alone."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


class _Seldom(logging.Filter):
    """Passes warnings of libraries about bad requests once in a while, with how often they were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._repetitions = Repetitions()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or not record.name.startswith(_ABOUT_REQUESTS):
            return True
        addition = self._repetitions.addition(record.name, record.msg)
        if addition:
            record.msg = f"{record.msg}{addition}"
        return addition is not None


def log_level_option(default: str) -> Callable[[Any], Any]:
    """The option that says what to log, for a command.

    Args:
        default: The level where nothing is said.
    """
    return option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default=default,
        show_default=True,
        help="What to log to standard error.",
    )


def configure_logging(level: str, form: str = "text") -> None:
    """Log to standard error from a level up.

    Args:
        level: One of `LEVELS`.
        form: ``text``, or ``json`` for one JSON object a line, the command's own messages included.

    Below ``debug`` a traceback shows the user's own frames, uvicorn logs its warnings only, and the MCP SDK nothing:
    what it logs of a broken connection is told by the command in one line. Warnings of libraries about requests are
    repeated once in a while at most.
    """
    handler = _VisibleHandler(sys.stderr)
    is_debug = level == "debug"
    if form == "json":
        from bridge.cli.json_logs import JsonFormatter, message_as_json  # noqa: PLC0415 - for those who want it

        handler.setFormatter(JsonFormatter(shows_all_frames=is_debug))
        set_message_format(message_as_json)
    else:
        handler.setFormatter(logging.Formatter(_FORMAT) if is_debug else UsersTracebackFormatter(_FORMAT))
        set_message_format(None)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    if not is_debug:
        handler.addFilter(_Seldom())
        logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        for name in ("httpx", "httpx2", "httpcore", "httpcore2", "watchfiles"):
            logging.getLogger(name).setLevel(logging.WARNING)

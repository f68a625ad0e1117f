"""Error lines, exit codes, tracebacks with the user's frames only, and log configuration."""

from __future__ import annotations

import logging
import os
import re
import sys
import sysconfig
from pathlib import Path
from time import time
from traceback import StackSummary, TracebackException
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import click

import bridge
from bridge.cli.options import option
from bridge.cli.terminal import broken_for, wants_colour
from bridge.errors import ArgumentsError, BridgeError, ResourceNotFoundError, ServerError, TargetError, UnknownToolError
from bridge.hosting.process import INTERRUPTED, TerminatedError, print_message, set_message_format
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip, escape_controls, escaped_json, to_json_line, utc_time
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_logger = logging.getLogger("bridge.cli")

FAILED = 1
"""Exit code: the tool or the server failed."""
USAGE = 2
"""Exit code: wrong usage."""
MAX_MESSAGE_CHARS = 8 * 1024
"""Maximum characters of a message, which may contain a caller's text."""
MAX_TRACEBACK_CHARS = 32 * 1024
"""Maximum characters of a traceback, from its beginning and end, since exceptions may quote input."""
MAX_ID_CHARS = 64
"""Maximum characters of the id of a request, which may be that of another server."""
LEVELS = ("debug", "info", "warning", "error", "critical")
"""Values of ``--log-level``."""
_USAGE_ERRORS = (TargetError, UnknownToolError, ResourceNotFoundError, ArgumentsError)
_ABOUT_REQUESTS = ("uvicorn.", "opentelemetry.")
"""Loggers that log a line for each invalid request."""

_FORMAT = "%(levelname)s %(name)s: %(message)s"


class UsersCodeError(BridgeError):
    """Code of a target raised an exception; ``users_traceback`` has the user's frames only."""

    def __init__(self, message: str, users_traceback: str) -> None:
        super().__init__(message)
        self.users_traceback = users_traceback


class ImportFailedError(UsersCodeError, TargetError):
    """A target raised an exception on import."""


class CommandError(BridgeError):
    """A command failed; the message gives the reason."""


def error_line(error: BaseException) -> str:
    """Message of an error on one line."""
    if not isinstance(error, ServerError):
        return " ".join(str(error).split())
    failure = error.failure
    details = (
        ("at", failure.address),
        ("exit code", failure.exit_code),
        ("last lines of stderr", " | ".join(failure.last_words) or None),
        ("hint", failure.hint),
    )
    described = "; ".join(f"{name}: {value}" for name, value in details if value is not None)
    line = f"server {failure.server!r}, {failure.phase}: {failure.reason}"
    return " ".join((f"{line} ({described})" if described else line).split())


def exit_code_of(command: Callable[[], object]) -> int:
    """Run a command, print an error as one line, and return the exit code."""
    set_message_format(message_as_text)
    try:
        code = command()
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort, TerminatedError) as error:
        return error.exit_code if isinstance(error, TerminatedError) else INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except click.ClickException as error:
        return _explained(error)
    except (BridgeError, OSError) as error:
        code = _reported(_of_lifespan(error) or error)
        try:
            sys.stdout.flush()
        except OSError:  # otherwise the interpreter would report it again
            _discard_stdout()
        return code
    except Exception as error:  # noqa: BLE001 - reported
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def _unexpected(error: Exception) -> int:
    if (failure := _of_lifespan(error)) is not None:
        return _reported(failure)
    message = f"bridge: {type(error).__name__}: {error} (an error in bridge; --log-level debug shows the traceback)"
    print_message(message, "error")
    _logger.debug("traceback:", exc_info=error)
    return FAILED


def _of_lifespan(error: Exception) -> UsersCodeError | None:
    """Return the error to report if a lifespan of the user could not be opened; None for another error."""
    from bridge.tools.lifespan import why_not_opened  # noqa: PLC0415 - after an error only

    reason = why_not_opened(error)
    return None if reason is None else UsersCodeError(reason, users_traceback(error))


def _reported(error: BridgeError | OSError) -> int:
    traceback = error.users_traceback if isinstance(error, UsersCodeError) else None
    print_message(f"bridge: {_message_of(error)}", "error", traceback)
    if traceback is not None:
        return FAILED
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED


def _message_of(error: BridgeError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = error.filename or ("standard output" if _has_unwritten_output() else None)
        return error.strerror if place is None else f"{place}: {error.strerror}"
    return error_line(error) if isinstance(error, ServerError) else str(error)


def _has_unwritten_output() -> bool:
    """True if standard output cannot be written: what was not is still buffered."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _explained(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bridge"
        print_message(f"{path}: {' '.join(error.format_message().split())} (see {path} --help)", "error")
    return error.exit_code


def _discard_stdout() -> None:
    """Prevent an error of the interpreter at exit about unwritten output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON lines: time, level, logger, message and traceback."""

    def __init__(self, *, shows_all_frames: bool) -> None:
        super().__init__()
        self._tracebacks = logging.Formatter() if shows_all_frames else UsersTracebackFormatter()

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        traceback = None
        if record.exc_info:
            traceback = record.exc_text or self.formatException(record.exc_info)
        message = clip(record.getMessage(), MAX_MESSAGE_CHARS)
        return _json_line(
            record.created, record.levelname.lower(), record.name, message, traceback, record.stack_info, _id_in(record)
        )

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Format a traceback."""
        return self._tracebacks.formatException(ei)


def message_as_text(message: str, level: str, traceback: str | None) -> str:  # noqa: ARG001 - of other formats
    """Format a message of the command for people; on a terminal, its lines are broken between words."""
    text = broken_for(sys.stderr, escape_controls(message))
    return text if traceback is None else f"{text}\n{escape_controls(traceback.rstrip())}"


def message_as_json(message: str, level: str, traceback: str | None) -> str:
    """Format a message of the command as a JSON log line."""
    return _json_line(time(), level, "bridge.cli", message, traceback)


def _json_line(
    seconds: float,
    level: str,
    logger: str,
    message: str,
    traceback: str | None,
    stack: str | None = None,
    request_id: str | None = None,
) -> str:
    line = {"time": utc_time(seconds), "level": level, "logger": logger, "message": message}
    further = without_none(
        request_id=request_id, exception=None if traceback is None else _ends_of(traceback), stack=stack
    )
    return escaped_json(to_json_line(line | further))


def _id_in(record: logging.LogRecord) -> str | None:
    """Return the id of the request that a record is about; None if it is about none."""
    found = getattr(record, "request_id", None)
    return clip(found, MAX_ID_CHARS) if isinstance(found, str) else None


def _ends_of(traceback: str) -> str:
    half = MAX_TRACEBACK_CHARS // 2
    return traceback if len(traceback) <= MAX_TRACEBACK_CHARS else f"{traceback[:half]}\n…\n{traceback[-half:]}"


_SDK = ("mcp", "client")
"""Loggers of the MCP SDK."""


_URL = re.compile(r"\bhttps?://[^\s'\"<>\\]+")


class _VisibleHandler(logging.StreamHandler[TextIO]):
    """Handler for standard error that escapes control characters, since log messages may contain foreign text.

    Args:
        hides_secrets: Redact the URLs in lines: libraries log those that they request, with the values of variables.
    """

    def __init__(self, *, hides_secrets: bool = False) -> None:
        logging.Handler.__init__(self)
        self._hides_secrets = hides_secrets

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # as logging's own handler of last resort has it
        """Standard error as it is now, which a command may have replaced."""
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        line, level = escape_controls(super().format(record)), record.levelname
        if self._hides_secrets and "://" in line:
            from bridge.redaction import redact_url  # noqa: PLC0415 - only to debug

            line = _URL.sub(lambda url: redact_url(url[0]).shown, line)
        line = broken_for(sys.stderr, line)
        if record.levelno < logging.WARNING or not line.startswith(level) or not wants_colour(sys.stderr):
            return line
        colour = "yellow" if record.levelno < logging.ERROR else "red"
        return click.style(level, fg=colour) + line.removeprefix(level)


class _Redacting(logging.Filter):
    """Redacts messages and tracebacks, before they are formatted."""

    def __init__(self, formatter: logging.Formatter | None, patterns: Sequence[re.Pattern[str]]) -> None:
        super().__init__()
        from bridge.telemetry.records import Redaction  # noqa: PLC0415 - only with patterns

        self._formatter = formatter or logging.Formatter()
        self._redaction = Redaction(patterns)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self._redaction.text(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = self._redaction.text(self._formatter.formatException(record.exc_info))
        return True


class _Seldom(logging.Filter):
    """Rate limit for libraries' warnings about invalid requests; adds the number of dropped ones."""

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


def log_level_option(default: str, **settings: Any) -> Callable[[Any], Any]:
    """Create the ``--log-level`` option of a command that calls `configure_logging`."""
    return option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default=default,
        help="Minimum level of log lines on standard error.",
        **settings,
    )


def logging_option(default: str) -> Callable[[Any], Any]:
    """Create the ``--log-level`` option of a command, which does not receive it: logging is configured by its value."""
    return log_level_option(default, expose_value=False, callback=_apply_level)


def _apply_level(ctx: click.Context, _: click.Parameter, level: str) -> None:
    if not ctx.resilient_parsing:
        configure_logging(level)


def configure_logging(level: str, form: str = "text", redacted: Sequence[re.Pattern[str]] = ()) -> None:
    """Log to standard error from a level of `LEVELS` up, as ``text``, or ``json`` including the command's messages.

    What matches one of the ``redacted`` patterns is replaced in messages and tracebacks.

    Above ``debug``, tracebacks have only the user's frames, uvicorn logs only warnings, and the MCP SDK nothing, since
    the command reports connection errors itself. Libraries' warnings about requests are rate-limited.
    """
    is_debug = level == "debug"
    handler = _VisibleHandler(hides_secrets=is_debug)
    if form == "json":
        handler.setFormatter(JsonFormatter(shows_all_frames=is_debug))
        set_message_format(message_as_json)
    else:
        handler.setFormatter(TextFormatter(_FORMAT) if is_debug else UsersTracebackFormatter(_FORMAT))
        set_message_format(message_as_text)
    if redacted:
        handler.addFilter(_Redacting(handler.formatter, redacted))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    if not is_debug:
        handler.addFilter(_Seldom())
        logging.getLogger("uvicorn").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
        for name in _SDK:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        for name in ("httpx", "httpx2", "httpcore", "httpcore2", "watchfiles"):
            logging.getLogger(name).setLevel(logging.WARNING)


_HIDDEN = (
    *(str(Path(package.__file__ or "").resolve().parent) for package in (bridge, anyio)),
    "<frozen importlib",
    "<frozen runpy",
)


_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def users_traceback(error: BaseException) -> str:
    """Format an error's traceback, with causes and contexts, without frames of this package and libraries."""
    described = _pruned(TracebackException.from_exception(error))
    bare = not described.stack and described.__cause__ is None and described.__context__ is None
    return "".join(described.format_exception_only() if bare else described.format())


def user_location(error: BaseException) -> str:
    """Line of user code at which an error occurred: ``tools.py, line 3``; empty if there is none.

    For an error in a library, this is the user's call of the library.
    """
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).exists():
        return f"{error.filename}, line {error.lineno}"
    frames = _pruned(TracebackException.from_exception(error)).stack
    own = [frame for frame in frames if not frame.filename.startswith(("<frozen ", *_LIBRARIES))] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def _pruned(described: TracebackException) -> TracebackException:
    described.stack = StackSummary.from_list(
        [frame for frame in described.stack if not frame.filename.startswith(_HIDDEN)]
    )
    for other in (described.__cause__, described.__context__, *(described.exceptions or ())):
        if other is not None:
            _pruned(other)
    return described


class TextFormatter(logging.Formatter):
    """Formats log records for people."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Format a message, with the id of the request that it is about."""
        line, request_id = super().formatMessage(record), _id_in(record)
        return line if request_id is None else f"{line} (request {repr(request_id)[1:-1]})"  # one line, escaped


class UsersTracebackFormatter(TextFormatter):
    """Formatter whose tracebacks have only the user's frames."""

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Format a traceback without the final newline."""
        return users_traceback(ei[1]).rstrip("\n") if ei[1] is not None else ""

"""Failures: every error of a command becomes one line on standard error, and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING

import click

from bridge.errors import ArgumentsError, BridgeError, ServerError, TargetError, UnknownToolError
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("bridge.cli")

FAILED = 1
"""The tool or the server failed."""
USAGE = 2
"""Wrong usage."""
INTERRUPTED = 130
"""Ended by Ctrl-C, as shells count it."""


class ImportFailedError(TargetError):
    """A target raised while it was imported.

    Attributes:
        users_traceback: The traceback, of the user's frames only.
    """

    def __init__(self, message: str, users_traceback: str) -> None:
        super().__init__(message)
        self.users_traceback = users_traceback


class CommandError(BridgeError):
    """A command cannot do what it was asked to do; the message says why."""


_as_said: Callable[[str, str, str | None], str] | None = None


def say(message: str, level: str = "info", traceback: str | None = None) -> None:
    """Write one diagnostic line to standard error.

    Args:
        message: The line.
        level: How severe it is, which only some forms tell: ``info``, ``warning`` or ``error``.
        traceback: What follows it in the plain form, and is a part of it in others.
    """
    click.echo(_plain(message, level, traceback) if _as_said is None else _as_said(message, level, traceback), err=True)


def say_as(form: Callable[[str, str, str | None], str] | None) -> None:
    """Give what is said from now on another form, such as JSON; None for the plain one."""
    global _as_said  # noqa: PLW0603 - a process has one standard error
    _as_said = form


def _plain(message: str, _level: str, traceback: str | None) -> str:
    return escape_controls(message if traceback is None else f"{message}\n{traceback.rstrip()}")


def one_line(error: BaseException) -> str:
    """What an error says, in one line."""
    if not isinstance(error, ServerError):
        return " ".join(str(error).split())
    failure = error.failure
    details = (
        ("at", failure.address),
        ("exit code", failure.exit_code),
        ("its last words", " | ".join(failure.last_words) or None),
        ("hint", failure.hint),
    )
    told = "; ".join(f"{name}: {value}" for name, value in details if value is not None)
    said = f"server {failure.server!r}, {failure.phase}: {failure.reason}"
    return " ".join((f"{said} ({told})" if told else said).split())


def exit_code_of(command: Callable[[], object]) -> int:
    """Run a command, report its failure in one line, and return the exit code."""
    try:
        code = command()
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        return end_now(INTERRUPTED)
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except click.ClickException as error:
        return _explained(error)
    except (BridgeError, OSError) as error:
        code = _reported(error)
        _give_up_on_unwritten()
        return code
    except Exception as error:
        told = f"bridge: {type(error).__name__}: {error} (a mistake of bridge's; --log-level debug shows where)"
        say(told, "error")
        _logger.debug("what happened:", exc_info=error)
        return FAILED
    return code if isinstance(code, int) else 0


def end_now(code: int) -> int:
    """End the process if threads would keep it from ending: functions that nobody waits for, and nothing can stop."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _reported(error: BridgeError | OSError) -> int:
    traceback = error.users_traceback if isinstance(error, ImportFailedError) else None
    say(f"bridge: {one_line(error) if isinstance(error, ServerError) else error}", "error", traceback)
    if traceback is not None:
        return FAILED
    return USAGE if isinstance(error, TargetError | UnknownToolError | ArgumentsError) else FAILED


def _explained(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bridge"
        say(f"{path}: {' '.join(error.format_message().split())} (see {path} --help)", "error")
    return error.exit_code


def _give_up_on_unwritten() -> None:
    """Discard what standard output did not take, which has been told, lest the interpreter tell it again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Keep the interpreter from complaining, when it ends, that nobody reads what is still buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

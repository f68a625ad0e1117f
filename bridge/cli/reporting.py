"""Failures: every error of a command becomes one line on standard error, and an exit code."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from bridge.errors import ArgumentsError, BridgeError, ServerError, TargetError, UnknownToolError
from bridge.hosting.process import INTERRUPTED, exit_process, print_message

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("bridge.cli")

FAILED = 1
"""The tool or the server failed."""

USAGE = 2
"""Wrong usage."""


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
        return exit_process(INTERRUPTED)
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
        print_message(told, "error")
        _logger.debug("what happened:", exc_info=error)
        return FAILED
    return code if isinstance(code, int) else 0


def _reported(error: BridgeError | OSError) -> int:
    traceback = error.users_traceback if isinstance(error, ImportFailedError) else None
    print_message(f"bridge: {one_line(error) if isinstance(error, ServerError) else error}", "error", traceback)
    if traceback is not None:
        return FAILED
    return USAGE if isinstance(error, TargetError | UnknownToolError | ArgumentsError) else FAILED


def _explained(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "bridge"
        print_message(f"{path}: {' '.join(error.format_message().split())} (see {path} --help)", "error")
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

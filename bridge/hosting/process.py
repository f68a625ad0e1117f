"""The end of a process that serves over HTTP: what signals ask of it, and what sees to it that it comes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

from bridge.errors import BridgeError
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_logger = logging.getLogger("bridge.hosting")

INTERRUPTED = 130
"""Ended by Ctrl-C, as shells count it."""

_as_said: Callable[[str, str, str | None], str] | None = None


class HostingError(BridgeError):
    """A server cannot be run as a process; the message says why."""


CLOSING_SECONDS = 4.5
"""How long closing may take after the drain: servers behind a gateway are ended, and some only when they are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """How long the parts of an orderly end take."""

    delay_seconds: float = 0.0
    """How long new calls are still served after SIGTERM."""
    timeout_seconds: float = 25.0
    """How long calls may go on after that."""


class ShutdownSignals:
    """What signals ask of a server. The first begins its end, and a second one after SIGTERM is the end.

    A second Ctrl-C only hurries: whoever sits at the terminal sees what is being waited for.

    Args:
        begin: Called with the first signal; like the others in the main thread, between any two of its instructions.
        hurry: Called with a second SIGINT after a first.
        last_act: Called, from any thread, where the process ends at once.
        times: How long the end may take after SIGTERM.
    """

    def __init__(
        self,
        begin: Callable[[], None],
        hurry: Callable[[], None],
        last_act: Callable[[], None],
        times: DrainTimes,
    ) -> None:
        self.first: int | None = None
        """The signal that began it."""
        self._begin = begin
        self._hurry = hurry
        self._last_act = last_act
        self._seconds = times.delay_seconds + times.timeout_seconds + CLOSING_SECONDS
        self._is_terminated = Event()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """The time during which signals are handled here; in the main thread."""
        Thread(target=self._watch, name="bridge-ending", daemon=True).start()
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    @property
    def is_drain(self) -> bool:
        """It began by SIGTERM."""
        return self.first == signal.SIGTERM

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.first is None:
            self.first = number
            if self.is_drain:
                self._is_terminated.set()
            self._begin()
        elif self.first == number == signal.SIGINT:
            self._hurry()
        else:
            # What is being written when a signal comes cannot be written to: no log line.
            os.write(2, b"a second signal: ending at once\n")
            self._exit(128 + number)

    def _watch(self) -> None:
        self._is_terminated.wait()
        time.sleep(self._seconds)
        _logger.error("the end takes longer than %g seconds: ending at once", self._seconds)
        self._exit(1)

    def _exit(self, code: int) -> None:
        try:
            self._last_act()
        finally:
            os._exit(code)


def print_message(message: str, level: str = "info", traceback: str | None = None) -> None:
    """Write one diagnostic line to standard error.

    Args:
        message: The line.
        level: How severe it is, which only some forms tell: ``info``, ``warning`` or ``error``.
        traceback: What follows it in the plain form, and is a part of it in others.
    """
    click.echo(_plain(message, level, traceback) if _as_said is None else _as_said(message, level, traceback), err=True)


def set_message_format(form: Callable[[str, str, str | None], str] | None) -> None:
    """Give what is said from now on another form, such as JSON; None for the plain one."""
    global _as_said  # noqa: PLW0603 - a process has one standard error
    _as_said = form


def _plain(message: str, _level: str, traceback: str | None) -> str:
    return escape_controls(message if traceback is None else f"{message}\n{traceback.rstrip()}")


def exit_process(code: int) -> int:
    """End the process if threads would keep it from ending: functions that nobody waits for, and nothing can stop."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


@contextmanager
def redirect_stdout() -> Iterator[None]:
    """Send to standard error what is written to standard output meanwhile, by this process or its children."""
    sys.stdout.flush()
    if isinstance(sys.stdout, TextIOWrapper):
        # As standard error does: a line is seen when it ends, and no character can make a print fail.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)

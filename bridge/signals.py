"""Signals that end a process: the hangup of a terminal, and their default action in forked children.

A fork inherits Python's signal handlers and the pipe to which signal numbers are written (`signal.set_wakeup_fd`). A
child process of a tool, as `multiprocessing` starts them, could thus not be terminated, and its SIGTERM would end the
server or the command instead.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import local

_HANDLING = ("bridge.", "asyncio.unix_events")
"""Beginnings of the modules whose handlers end the process; those of asyncio do nothing but write to the pipe."""


def hangup_signals() -> list[signal.Signals]:
    """Return SIGHUP, which a closed terminal sends, to be handled as SIGTERM; nothing where it is ignored (`nohup`)."""
    hangup = getattr(signal, "SIGHUP", None)
    return [] if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN else [hangup]


def has_terminal() -> bool:
    """True if the process belongs to a terminal, which sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | getattr(os, "O_NOCTTY", 0)))
    except OSError:
        return False
    return True


def _hold_before_fork() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _release_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _restore_in_child() -> None:
    for number in _ENDING:
        handler = signal.getsignal(number)
        if str(getattr(handler, "__module__", "")).startswith(_HANDLING):
            signal.set_wakeup_fd(-1)
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


if sys.platform != "win32":
    _ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    _forking = local()
    os.register_at_fork(before=_hold_before_fork, after_in_parent=_release_in_parent, after_in_child=_restore_in_child)

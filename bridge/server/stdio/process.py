"""Process of a server over stdio: standard streams reserved for the protocol, and a watchdog that ends the process.

Standard output is for messages only (MCP, "Transports", stdio). Replacing ``sys.stdout`` is not enough, because C
extensions and child processes write to the file descriptor.

The process ends on SIGTERM and SIGINT, when its input closes, and when its parent has ended, because another process
may keep the parent's end of the pipe open. A tool may block the event loop or a worker thread, so a thread of its own
watches for all of this, and enforces the end.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from bridge.signals import hangup_signals

if TYPE_CHECKING:
    from collections.abc import Callable

END_SECONDS = 2.0
"""Maximum seconds for shutdown. Clients kill a server about two seconds after they asked it to end."""
CLOSED_INPUT_SECONDS = 10.0
"""Maximum seconds for answering pending requests after the input has closed."""
POLL_SECONDS = 1.0
"""Seconds between checks for the parent, on systems without a notification of its end."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END = b"\0"  # not the number of a signal
_ENDS = frozenset({*_END, *_ENDING_SIGNALS})
"""Bytes that request the shutdown."""
_READ_BYTES = 4096


class Watchdog:
    """Requests the shutdown of the process, and forces it after a timeout.

    It forces the exit by `os._exit`, because a worker thread that never returns would keep the interpreter from
    exiting.

    Create it in the main thread: it handles SIGTERM and SIGINT for the rest of the process's life.

    Args:
        input_fd: The input whose closing begins the shutdown.
        stop: Called in the watching thread to stop the server at once.
        last_act: Called in the watching thread before a forced exit.
    """

    def __init__(self, input_fd: int, stop: Callable[[], None], last_act: Callable[[], None] = lambda: None) -> None:
        self._input_fd = input_fd
        self._stop = stop
        self._last_act = last_act
        self._parent = os.getppid()
        self._deadline = float("inf")
        self._is_ending = False
        self._wakeup_read, self._wakeup_write = os.pipe()
        for number in (*_ENDING_SIGNALS, *hangup_signals()):
            signal.signal(number, lambda *_: self.end())
        if hasattr(select, "poll"):
            # Python's handlers run in the main thread, which native code may block. The number of each signal with a
            # handler is written to this pipe at once.
            os.set_blocking(self._wakeup_write, False)
            signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        watch = self._watch if hasattr(select, "poll") else self._wait_for_wakeup
        Thread(target=watch, name="bridge-watchdog", daemon=True).start()

    def end(self) -> None:
        """Begin the shutdown, which takes at most `END_SECONDS`; from any thread, and from a signal handler."""
        if not self._is_ending:
            self._is_ending = True
            os.write(self._wakeup_write, _END)

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._wakeup_read, select.POLLIN)
        # Watch for the end of the input only; the event loop reads it.
        poller.register(self._input_fd, getattr(select, "POLLRDHUP", 0))
        parent_fd = _process_fd(self._parent)
        if parent_fd is not None:
            poller.register(parent_fd, select.POLLIN)
        interval_seconds = POLL_SECONDS if self._parent and parent_fd is None else 3600.0
        while (left_seconds := self._deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in poller.poll(min(left_seconds, interval_seconds) * 1000)}
            if self._wakeup_read in ready and _ENDS.isdisjoint(os.read(self._wakeup_read, _READ_BYTES)):
                ready.remove(self._wakeup_read)  # a signal that the tools file handles
            for fd in ready:
                poller.unregister(fd)
            if self._input_fd in ready:
                self._shorten(CLOSED_INPUT_SECONDS)
            if ready & {self._wakeup_read, parent_fd} or os.getppid() != self._parent:
                self._shorten(END_SECONDS)
                self._stop()
        self._exit()

    def _wait_for_wakeup(self) -> None:
        """Wait on systems without poll (Windows), where the end of the parent closes the input."""
        os.read(self._wakeup_read, 1)
        self._stop()
        time.sleep(END_SECONDS)
        self._exit()

    def _exit(self) -> None:
        try:
            self._last_act()
        finally:
            os._exit(0)

    def _shorten(self, seconds: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)


def _process_fd(process: int) -> int | None:
    """Return a file descriptor that becomes readable when a process ends; None if the system has none."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):  # an old system, a sandbox, or a parent outside of the container
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolStreams:
    """File descriptors of the protocol."""

    input_fd: int
    """Duplicate of the original standard input."""
    output_fd: int
    """Duplicate of the original standard output."""


def take_standard_streams() -> ProtocolStreams:
    """Reserve standard input and output for the protocol, for the rest of the process's life.

    Call it before importing code that may print. Afterwards, output of Python, C extensions and child processes goes to
    standard error, and standard input is empty.

    Returns:
        The streams of the protocol; child processes do not inherit them.

    Raises:
        OSError: Standard input or output is closed.
    """
    streams = ProtocolStreams(input_fd=_private(0), output_fd=_private(1))
    _point(0, os.open(os.devnull, os.O_RDONLY))
    _point(1, _standard_error())
    sys.stdout = sys.stderr
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _replace_in_child(streams))
    return streams


def _private(fd: int) -> int:
    """Duplicate a file descriptor to a number of at least 3, even if some of the standard three are closed."""
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl  # noqa: PLC0415 - not on every platform

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _standard_error() -> int:
    try:
        return os.dup(2)
    except OSError:  # standard error is closed
        return os.open(os.devnull, os.O_WRONLY)


def _point(standard_fd: int, target_fd: int) -> None:
    os.dup2(target_fd, standard_fd)
    os.close(target_fd)


def _replace_in_child(streams: ProtocolStreams) -> None:
    """Close the client's pipes in a forked child, and open the null device in their place."""
    for fd in (streams.input_fd, streams.output_fd):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd, inheritable=False)
        os.close(null)

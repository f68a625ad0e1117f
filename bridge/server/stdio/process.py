"""Standard streams taken for the protocol; watchdog.

The lifeline: what a process that serves over stdio lives by, watched where nothing can block the watch.

Such a process ends when it is asked to (SIGTERM, SIGINT), when its input closes, and when its parent is gone: another
process can hold the parent's end of the pipe, and the end of the input would never come. A tool can block the event
loop, or hold a thread that never returns, so all of this is watched in a thread, which also sees to it that the end,
once it has begun, comes.

The diversion: standard input and output, taken from the process and kept for the protocol.

On stdio every byte of standard output belongs to the protocol (MCP, "Transports", stdio: the server MUST NOT write
anything to stdout that is not a valid message). Replacing ``sys.stdout`` would not do: C extensions and child processes
write to the file descriptor.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

END_SECONDS = 2.0
"""How long the end may take. Hosts kill a server about two seconds after they asked it to end."""

CLOSED_INPUT_SECONDS = 10.0
"""How long after its input was closed the process may still have work: what had been asked is read and answered."""

POLL_SECONDS = 1.0
"""How often to look for the parent where the system cannot tell when it ends."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_END = b"\0"  # the number of no signal

_BELL_BYTES = 4096


class Watchdog:
    """Watches what the process lives by, and ends the process where it does not end by itself.

    The last resort is `os._exit`: a worker thread that never returns would keep the interpreter from exiting, and no
    thread can be stopped. Standard output and error hold nothing back by then but a line without its end.

    Make it in the main thread: it handles SIGTERM and SIGINT for the rest of the process's life.

    Args:
        input_fd: The input whose closing is the beginning of the end.
        stop: Called, in the watching thread, when the process is to end at once.
        last_act: Called, in the watching thread, before the last resort is taken.
    """

    def __init__(self, input_fd: int, stop: Callable[[], None], last_act: Callable[[], None] = lambda: None) -> None:
        self._input_fd = input_fd
        self._stop = stop
        self._last_act = last_act
        self._parent = os.getppid()
        self._deadline = float("inf")
        self._rung = False
        self._bell, self._rope = os.pipe()
        for number in _ENDING_SIGNALS:
            signal.signal(number, lambda *_: self.end())
        if hasattr(select, "poll"):
            # Python's handlers wait for the main thread, which a tool may hold in native code. The number of each
            # signal that has such a handler is written here at once.
            os.set_blocking(self._rope, False)
            signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        watch = self._watch if hasattr(select, "poll") else self._wait_for_bell
        Thread(target=watch, name="bridge-lifeline", daemon=True).start()

    def end(self) -> None:
        """Let the process end within `END_SECONDS`; from any thread, and from a signal handler."""
        if not self._rung:
            self._rung = True
            os.write(self._rope, _END)

    def _watch(self) -> None:
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        # Only the end of the input is of interest here; the loop reads the rest.
        poller.register(self._input_fd, getattr(select, "POLLRDHUP", 0))
        parent_fd = _process_fd(self._parent)
        if parent_fd is not None:
            poller.register(parent_fd, select.POLLIN)
        look_every_seconds = POLL_SECONDS if self._parent and parent_fd is None else 3600.0
        while (left_seconds := self._deadline - time.monotonic()) > 0:
            happened = {fd for fd, _ in poller.poll(min(left_seconds, look_every_seconds) * 1000)}
            if self._bell in happened and not self._is_end(os.read(self._bell, _BELL_BYTES)):
                happened.remove(self._bell)
            for fd in happened:
                poller.unregister(fd)
            if self._input_fd in happened:
                self._shorten(CLOSED_INPUT_SECONDS)
            if happened & {self._bell, parent_fd} or os.getppid() != self._parent:
                self._shorten(END_SECONDS)
                self._stop()
        self._exit()

    @staticmethod
    def _is_end(written: bytes) -> bool:
        """Whether one of the bytes asks for the end; a tools file may handle other signals."""
        return not set(written).isdisjoint({*_END, *_ENDING_SIGNALS})

    def _wait_for_bell(self) -> None:
        """Where nothing can be polled (Windows): there, a parent that ends closes its pipes."""
        os.read(self._bell, 1)
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
    """A file descriptor that becomes readable when the process ends, where there are such."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):  # an old system, a sandbox, or a parent outside of the container
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolStreams:
    """Where the protocol is read and written."""

    input_fd: int
    """What was standard input."""
    output_fd: int
    """What was standard output."""


def take_standard_streams() -> ProtocolStreams:
    """Take standard input and output for the protocol, for the rest of the process's life.

    Call it before any code is imported that might print. From then on whatever is printed, by Python, by a C extension
    or by a child process, goes to standard error, and whatever is read from standard input is at its end.

    Returns:
        The streams for the protocol; no child process inherits them.

    Raises:
        OSError: Standard input or output is closed.
    """
    streams = ProtocolStreams(input_fd=_private(0), output_fd=_private(1))
    _point(0, os.open(os.devnull, os.O_RDONLY))
    _point(1, _standard_error())
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error does: a line is seen when it ends, and no character can make a print fail.
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _let_go(streams))
    return streams


def _private(fd: int) -> int:
    """A duplicate that is none of the standard three, even where some of those are closed."""
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl  # noqa: PLC0415 - not on every platform

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _standard_error() -> int:
    try:
        return os.dup(2)
    except OSError:  # closed: nobody wants to see what is printed
        return os.open(os.devnull, os.O_WRONLY)


def _point(standard_fd: int, target_fd: int) -> None:
    os.dup2(target_fd, standard_fd)
    os.close(target_fd)


def _let_go(streams: ProtocolStreams) -> None:
    """In a forked child: hold the client's pipes open no longer, and keep the numbers from meaning another file."""
    for fd in (streams.input_fd, streams.output_fd):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd, inheritable=False)
        os.close(null)

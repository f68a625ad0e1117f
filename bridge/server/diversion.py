"""The diversion: standard input and output, taken from the process and kept for the protocol.

On stdio every byte of standard output belongs to the protocol (MCP, "Transports", stdio: the server MUST NOT write
anything to stdout that is not a valid message). Replacing ``sys.stdout`` would not do: C extensions and child processes
write to the file descriptor.
"""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolStreams:
    """Where the protocol is read and written."""

    input_fd: int
    """What was standard input."""
    output_fd: int
    """What was standard output."""


def divert_stdout() -> ProtocolStreams:
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

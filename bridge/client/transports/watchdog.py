"""Watchdog that kills the children of this process after it was killed.

A small shell process reads the process groups of the children from a pipe. Only this process can write to the pipe, so
it ends with this process. Then the shell kills the remaining groups.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

_SHELL = "/bin/sh"
_SCRIPT = """
while read -r group; do
  case $group in
    -*) for each; do shift; [ "-$each" = "$group" ] || set -- "$@" "$each"; done ;;
    *) set -- "$@" "$group" ;;
  esac
done
for each; do kill -KILL "-$each"; done 2>/dev/null
"""
_logger = logging.getLogger("bridge.client")


class Watchdog:
    """Kills process groups after this process has ended; does nothing on Windows, or without a shell."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._pipe: int | None = None

    def add(self, group: int) -> None:
        """Register a process group."""
        self._groups.add(group)
        self._write(group)

    def discard(self, group: int) -> None:
        """Unregister a process group that has ended."""
        if group in self._groups:
            self._groups.discard(group)
            self._write(-group)

    def forget(self) -> None:
        """Unregister all groups in a fork, and close the pipe: they belong to the parent."""
        self._groups.clear()
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _write(self, number: int) -> None:
        if sys.platform == "win32":
            return
        try:
            if self._pipe is None:
                self._start()
            elif not _written(self._pipe, number):
                os.close(self._pipe)  # the shell was killed
                self._start()
        except (OSError, NotImplementedError) as error:
            self._pipe = None
            _logger.debug("no watchdog: children continue if this process is killed: %r", error)

    def _start(self) -> None:
        """Start the shell, and register all groups."""
        reading, writing = os.pipe()
        try:
            actions = [(os.POSIX_SPAWN_DUP2, reading, 0)]
            null = os.open(os.devnull, os.O_WRONLY)
            try:
                actions += [(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
                os.posix_spawn(_SHELL, [_SHELL, "-c", _SCRIPT], {}, file_actions=actions, setsid=True)
            finally:
                os.close(null)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._pipe = writing
        for group in self._groups:
            _written(writing, group)


def _written(pipe: int, number: int) -> bool:
    with suppress(BrokenPipeError):
        os.write(pipe, b"%d\n" % number)
        return True
    return False

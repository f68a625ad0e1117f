"""Limits of child processes: a control group (cgroup 2) where the service manager has delegated one, rlimits otherwise.

A shell sets the limits of itself and then becomes the program, so that nothing of it runs without them.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_logger = logging.getLogger("bridge.client")

_GROUPS = Path("/sys/fs/cgroup")
_DELEGATED = "user.delegate"
"""Extended attribute of a group that systemd has delegated (``Delegate=``)."""
_OWN = "bridge"
"""Group of this process, since a group with processes cannot have limited ones below it."""
_CONTROLLERS = ("memory", "cpu")
_PERIOD_MICROSECONDS = 100_000
_SHELL = "/bin/sh"
_SCRIPT = """
[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 126
[ -z "$2" ] || ulimit -d "$2" || exit 126
[ -z "$3" ] || ulimit -t "$3" || exit 126
shift 3
exec "$@"
"""
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Limits of a child process."""

    memory_mib: int | None = None
    """MiB of memory: of the process and its descendants together in a control group, of each of them otherwise."""
    cpus: float | None = None
    """CPUs of the process and its descendants together; only in a control group."""
    cpu_seconds: int | None = None
    """Seconds of CPU time, after which a process is killed, and started again."""

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.memory_mib, self.cpus, self.cpu_seconds))

    def __str__(self) -> str:
        keys = {"maxMemoryMib": self.memory_mib, "maxCpus": self.cpus, "maxCpuSeconds": self.cpu_seconds}
        return ", ".join(f"{key} {value:g}" for key, value in keys.items() if value is not None)


NO_LIMITS = ProcessLimits()
"""No limits."""


@contextmanager
def limited(
    command: Sequence[str], limits: ProcessLimits, name: str, environment: Mapping[str, str]
) -> Iterator[Sequence[str]]:
    """Return the command that runs another one with limits; its control group is removed after the block.

    Raises:
        FileNotFoundError: The program is not in the ``PATH`` of the environment.
    """
    if not limits or sys.platform == "win32":
        if limits:
            _logger.warning("server %r: its limits (%s) have no effect on Windows", name, limits)
        yield command
        return
    program = command[0]
    if os.sep not in program and shutil.which(program, path=environment.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    group = None
    if limits.memory_mib is not None or limits.cpus is not None:
        group = _new_group(limits, name)
    if group is None and limits.cpus is not None:
        _logger.warning(
            "server %r: maxCpus has no effect without a delegated control group (systemd: Delegate=cpu memory)",
            name,
        )
    kibibytes = "" if group is not None or limits.memory_mib is None else str(limits.memory_mib * 1024)
    seconds = "" if limits.cpu_seconds is None else str(limits.cpu_seconds)
    try:
        yield [_SHELL, "-c", _SCRIPT, "sh", "" if group is None else str(group), kibibytes, seconds, *command]
    finally:
        if group is not None:
            with suppress(OSError):
                (group / "cgroup.kill").write_text("1")
            with suppress(OSError):  # a killed process may not have left it yet; the unit's end removes it
                group.rmdir()


def _new_group(limits: ProcessLimits, name: str) -> Path | None:
    """Make a control group with limits; None if that is not possible."""
    parent = delegated_group()
    if parent is None:
        return None
    group = parent / f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:64]}-{os.getpid()}-{next(_numbers)}"
    try:
        group.mkdir()
        if limits.memory_mib is not None:
            (group / "memory.max").write_text(str(limits.memory_mib * 1024 * 1024))
            (group / "memory.oom.group").write_text("1")
        if limits.cpus is not None:
            (group / "cpu.max").write_text(f"{round(limits.cpus * _PERIOD_MICROSECONDS)} {_PERIOD_MICROSECONDS}")
    except OSError as error:
        _logger.warning("server %r: no control group %s, so its limits are rlimits: %s", name, group, error)
        with suppress(OSError):
            group.rmdir()
        return None
    return group


def delegated_group() -> Path | None:
    """Return the control group of this process below which it may make others; None if there is none.

    The processes of the group, which are this one and its workers, move to a group below it.
    """
    try:
        own = _GROUPS / Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip().lstrip("/")
        group = own.parent if own.name == _OWN else own
        if os.getxattr(group, _DELEGATED) != b"1":
            return None
        if not {*_CONTROLLERS} <= {*(group / "cgroup.controllers").read_text().split()}:
            return None
        if {*_CONTROLLERS} <= {*(group / "cgroup.subtree_control").read_text().split()}:
            return group
        (group / _OWN).mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            (group / _OWN / "cgroup.procs").write_text(pid)
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in _CONTROLLERS))
    except (OSError, AttributeError):  # other platforms have no extended attributes
        return None
    return group

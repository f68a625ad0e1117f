"""Child processes of stdio servers: start, standard error, and end of the process group.

A child leads its own session, so that its process group can be ended with all descendants. Only a process that leaves
the group, as a daemon does, continues. The group also ends with this process, even if that is killed (see
`Watchdog`).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import os
import signal
import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import anyio.lowlevel

from bridge.client.transports.process_limits import NO_LIMITS, ProcessLimits, limited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

_logger = logging.getLogger("bridge.client")

EXIT_GRACE_SECONDS = 2.0
"""Seconds that a child has to end after its input was closed (MCP, Lifecycle, "Shutdown")."""

TERMINATE_GRACE_SECONDS = 2.0
"""Seconds that it has to end after a signal."""

_REAP_SECONDS = 2.0
_POLL_SECONDS = 0.01
_CLOSING_ERRORS = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
LINES_OF_A_TURN = 100
"""Lines of output that are read before other tasks run: one read may have very many."""
_MAX_WORDS = 20
_MAX_WORD_CHARS = 500

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


class Watchdog:
    """Kills process groups after this process has ended; does nothing on Windows, or without a shell.

    A small shell process reads the process groups from a pipe. Only this process can write to the pipe, so it ends with
    this process. Then the shell kills the remaining groups.
    """

    def __init__(self) -> None:
        self.groups: set[int] = set()
        """The process groups of running children; they are also killed when this process ends."""
        self._pipe: int | None = None

    def add(self, group: int) -> None:
        """Register a process group."""
        self.groups.add(group)
        self._write(group)

    def discard(self, group: int) -> None:
        """Unregister a process group that has ended."""
        self.groups.discard(group)
        self._write(-group)

    def forget(self) -> None:
        """Forget all groups in a fork, and close the pipe: they belong to the parent."""
        self.groups.clear()
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
        nowhere = (os.devnull, os.O_WRONLY, 0)
        actions = [
            (os.POSIX_SPAWN_DUP2, reading, 0),
            (os.POSIX_SPAWN_OPEN, 1, *nowhere),
            (os.POSIX_SPAWN_OPEN, 2, *nowhere),
        ]
        try:
            os.posix_spawn(_SHELL, [_SHELL, "-c", _SCRIPT], {}, file_actions=actions, setsid=True)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._pipe = writing
        for group in self.groups:
            _written(writing, group)


def _written(pipe: int, number: int) -> bool:
    with suppress(BrokenPipeError):
        os.write(pipe, b"%d\n" % number)
        return True
    return False


_watchdog = Watchdog()

MINIMAL = (
    (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
    if sys.platform == "win32"
    else ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
)
"""Environment variables that programs need and that contain no secrets."""


InheritEnvironment: TypeAlias = Literal["minimal", "all"] | tuple[str, ...]
"""Environment variables that a child process inherits: the essential ones (``PATH``, ``HOME``, …), all, or the
essential ones and these."""


class ChildProcess:
    """A running child process.

    Attributes:
        pid: Process ID; also the ID of its process group and session.
        stdin: Its standard input.
        stdout: Its standard output.
    """

    def __init__(self, process: Process, name: str, scrub: Callable[[str], str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._process = process
        self._name = name
        self._scrub = scrub
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self._last_words: deque[str] = deque(maxlen=_MAX_WORDS)
        self._stderr_ended = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs. A negative number is that of a signal."""
        return self._process.returncode

    @property
    def last_words(self) -> tuple[str, ...]:
        """Last lines of its standard error, without secrets."""
        return tuple(self._last_words)

    def log_line(self, line: str) -> None:
        """Keep and log a line of output that is not a message."""
        if line.strip():
            shown = self._scrub(line.rstrip()[:_MAX_WORD_CHARS])
            self._last_words.append(shown)
            _logger.debug("server %r: %s", self._name, shown)

    async def settle(self, seconds: float) -> None:
        """Wait until a child that closed its output has ended, for a maximum number of seconds."""
        with anyio.move_on_after(seconds):
            await self._ended(math.inf)
            await self._stderr_ended.wait()

    async def read_stderr(self) -> None:
        """Read the child's standard error until it ends."""
        assert self._process.stderr is not None
        rest = b""
        try:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                async for chunk in self._process.stderr:
                    *lines, rest = (rest + chunk).split(b"\n")
                    rest = rest[-4 * _MAX_WORD_CHARS :]
                    for number, line in enumerate(lines, 1):
                        self.log_line(line.decode(errors="replace"))
                        if number % LINES_OF_A_TURN == 0:
                            await anyio.lowlevel.checkpoint()
            self.log_line(rest.decode(errors="replace"))
        finally:
            self._stderr_ended.set()

    async def end(self) -> None:
        """End the child with all descendants; limited in time, to be called in a shielded scope.

        Its input is closed first, as the protocol demands. Remaining processes get SIGTERM, then SIGKILL.
        """
        try:
            await _close(self.stdin)
            await self._ended(EXIT_GRACE_SECONDS)
            if _signal_group(self.pid, _TERMINATE):
                await self._group_gone(TERMINATE_GRACE_SECONDS)
        finally:
            self.kill()
        await self._ended(_REAP_SECONDS)
        if self._process.returncode is not None:  # otherwise this would wait for it without a limit
            with anyio.move_on_after(_REAP_SECONDS), suppress(*_CLOSING_ERRORS):
                await self._process.aclose()  # on asyncio nothing else closes the pipe's descriptor
            await _forget_broken_pipe(self.stdin)
        for stream in (self.stdout, self._process.stderr):
            if stream is not None:
                await _close(stream)

    def kill(self) -> None:
        """Kill the child with all descendants."""
        if self.pid in _watchdog.groups:
            _signal_group(self.pid, _KILL)
            _watchdog.discard(self.pid)

    async def _ended(self, seconds: float) -> None:
        """Wait until the child has ended. `Process.wait` also waits for its pipes, which descendants may hold."""
        with anyio.move_on_after(seconds):
            while self._process.returncode is None:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(_POLL_SECONDS)

    async def _group_gone(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while _signal_group(self.pid, 0):
                _ = self._process.returncode  # reaps the leader on trio
                await anyio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def child_process(
    command: Sequence[str],
    name: str,
    *,
    environment: Mapping[str, str],
    cwd: str | None,
    scrub: Callable[[str], str],
    limits: ProcessLimits = NO_LIMITS,
) -> AsyncIterator[ChildProcess]:
    """Start a server as a child process in this block; afterwards it has ended with all descendants.

    Its name is that of the server, for logs; `scrub` removes secrets from its output.

    Raises:
        OSError: It cannot be started.
    """
    with limited(command, limits, name, environment) as words:
        with anyio.CancelScope(shield=True):  # a cancelled start would leave an unknown child
            process = await anyio.open_process(words, env=environment, cwd=cwd, start_new_session=True)
            _watchdog.add(process.pid)
            child = ChildProcess(process, name, scrub)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.read_stderr)
                try:
                    yield child
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.end()
                    tasks.cancel_scope.cancel()
        finally:
            child.kill()  # if the shielded end was interrupted


async def _close(stream: ByteSendStream | ByteReceiveStream) -> None:
    with suppress(*_CLOSING_ERRORS):
        await stream.aclose()


async def _forget_broken_pipe(stdin: ByteSendStream) -> None:
    """Retrieve the error that closed a child's input, which asyncio of Python 3.11.2 would log with a traceback."""
    writer = getattr(stdin, "_stream", None)
    if isinstance(writer, asyncio.StreamWriter):
        with anyio.move_on_after(_REAP_SECONDS), suppress(*_CLOSING_ERRORS):
            await writer.wait_closed()


if sys.platform == "win32":  # pragma: no cover - groups are POSIX's
    _TERMINATE = _KILL = signal.SIGTERM

    def _signal_group(pid: int, number: int) -> bool:
        if number == 0:
            return False
        with suppress(OSError):
            os.kill(pid, number)
            return True
        return False

else:
    _TERMINATE, _KILL = signal.SIGTERM, signal.SIGKILL

    def _signal_group(pid: int, number: int) -> bool:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # on macOS, for zombies
            return True
        return True


def running_children() -> int:
    """Number of running children."""
    return len(_watchdog.groups)


@atexit.register
def kill_all_children() -> None:
    """Kill all children with their descendants, before this process ends."""
    for pid in tuple(_watchdog.groups):
        _signal_group(pid, _KILL)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_watchdog.forget)


def child_environment(
    inherit: InheritEnvironment, added: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build the environment of a child: what it inherits, by default from this process, and what is added."""
    source = os.environ if environ is None else environ
    names = source.keys() if inherit == "all" else (*MINIMAL, *(() if inherit == "minimal" else inherit))
    inherited = {name: source[name] for name in names if name in source}
    return {name: value for name, value in inherited.items() if not value.startswith("()")} | dict(added)

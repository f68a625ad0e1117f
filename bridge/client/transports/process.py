"""Child process of a stdio server.

Process: a child that is a server, its last words, and the end of its whole tree.

A child leads a session of its own, so that its process group can be ended as one: the shell that it was started by,
and whatever it started itself. Only a process that leaves the group on purpose, as a daemon does, escapes. It ends with
this process too, even where that is killed (see `bridge.client.transports.watchdog`).

Environment: the variables that a child process gets.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import signal
import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import anyio

from bridge.client.transports.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

_logger = logging.getLogger("bridge.client")

EXIT_GRACE_SECONDS = 2.0
"""How long a child may take to end by itself once its input has ended (MCP lifecycle, shutdown)."""

TERMINATE_GRACE_SECONDS = 2.0
"""How long it may take to end once it was asked to by a signal."""

_REAP_SECONDS = 2.0

_POLL_SECONDS = 0.01

_CLOSING_ERRORS = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)

_MAX_WORDS = 20

_MAX_WORD_CHARS = 500

_alive: set[int] = set()
"""The process groups of children that have not been ended: ended with this process, whatever happens to its loops."""

_watchdog = Watchdog()
"""Ends them where this process is killed."""

MINIMAL = (
    (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
    if sys.platform == "win32"
    else ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
)
"""What any program needs, and nothing that may be secret."""


InheritEnvironment: TypeAlias = Literal["minimal", "all"] | tuple[str, ...]
"""Environment variables that a child process inherits: the essential ones (``PATH``, ``HOME``, …), all, or the
essential ones and these."""


class Command(Protocol):
    """A program to start; a `bridge.client.transports.stdio.StdioTransport`."""

    @property
    def command(self) -> str:
        """The program."""

    @property
    def args(self) -> tuple[str, ...]:
        """Its arguments."""

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables in addition to the inherited ones."""

    @property
    def inherit_env(self) -> InheritEnvironment:
        """Environment variables that it inherits."""

    @property
    def cwd(self) -> str | None:
        """Its working directory."""

    def scrub(self, text: str) -> str:
        """Remove secrets from its output."""


class ChildProcess:
    """A child that runs.

    Attributes:
        pid: Its process id, which is its group's and its session's too.
        stdin: What it reads.
        stdout: What it writes.
    """

    def __init__(self, process: Process, command: Command, name: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._process = process
        self._command = command
        self._name = name
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self._last_words: deque[str] = deque(maxlen=_MAX_WORDS)
        self._fell_silent = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs. A negative number is that of the signal that ended it."""
        return self._process.returncode

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines that it wrote to its standard error, without what is secret."""
        return tuple(self._last_words)

    def heard(self, line: str) -> None:
        """Keep a line that the child wrote for people."""
        if line.strip():
            shown = self._command.scrub(line.rstrip()[:_MAX_WORD_CHARS])
            self._last_words.append(shown)
            _logger.debug("server %r: %s", self._name, shown)

    async def settle(self, seconds: float) -> None:
        """Wait, for so long at most, until a child that has closed its output has ended and said its last words."""
        with anyio.move_on_after(seconds):
            await self._ended(math.inf)
            await self._fell_silent.wait()

    async def listen(self) -> None:
        """Read what the child writes to its standard error, until that ends."""
        assert self._process.stderr is not None
        rest = b""
        try:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                async for chunk in self._process.stderr:
                    *lines, rest = (rest + chunk).split(b"\n")
                    rest = rest[-4 * _MAX_WORD_CHARS :]
                    for line in lines:
                        self.heard(line.decode(errors="replace"))
            self.heard(rest.decode(errors="replace"))
        finally:
            self._fell_silent.set()

    async def end(self) -> None:
        """End the child and all that it started; bounded, and to be run under a shield.

        Its input ends first, as the protocol has it; a signal asks whatever is left; a second one does not ask.
        """
        try:
            await _close(self.stdin)
            await self._ended(EXIT_GRACE_SECONDS)
            if _signal_group(self.pid, _TERMINATE):
                await self._group_gone(TERMINATE_GRACE_SECONDS)
        finally:
            self.kill()
        await self._ended(_REAP_SECONDS)
        if self._process.returncode is not None:  # else it would be waited for without end
            with anyio.move_on_after(_REAP_SECONDS), suppress(*_CLOSING_ERRORS):
                await self._process.aclose()  # on asyncio nothing else gives a pipe's descriptor back
        for stream in (self.stdout, self._process.stderr):
            if stream is not None:
                await _close(stream)

    def kill(self) -> None:
        """End the child and all that it started, at once."""
        if self.pid in _alive:
            _alive.discard(self.pid)
            _signal_group(self.pid, _KILL)
            _watchdog.discard(self.pid)

    async def _ended(self, seconds: float) -> None:
        """Wait until the child itself has ended. `Process.wait` waits for its pipes too, which others may hold."""
        with anyio.move_on_after(seconds):
            while self._process.returncode is None:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(_POLL_SECONDS)

    async def _group_gone(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while _signal_group(self.pid, 0):
                _ = self._process.returncode  # reaps the leader on trio
                await anyio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def child_process(command: Command, name: str) -> AsyncIterator[ChildProcess]:
    """Start a server as a child; it and all that it started have ended when the context has.

    Args:
        command: The program.
        name: What the server is called.

    Raises:
        OSError: It cannot be started.
    """
    with anyio.CancelScope(shield=True):  # half a start would leave a child that nobody knows
        child = await _started(command, name)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.listen)
            try:
                yield child
            finally:
                with anyio.CancelScope(shield=True):
                    await child.end()
                tasks.cancel_scope.cancel()
    finally:
        child.kill()  # where even a shield did not hold


async def _started(command: Command, name: str) -> ChildProcess:
    process = await anyio.open_process(
        [command.command, *command.args],
        env=child_environment(command.inherit_env, command.env),
        cwd=command.cwd,
        start_new_session=True,
    )
    _alive.add(process.pid)
    _watchdog.add(process.pid)
    return ChildProcess(process, command, name)


async def _close(stream: ByteSendStream | ByteReceiveStream) -> None:
    with suppress(*_CLOSING_ERRORS):
        await stream.aclose()


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
        except PermissionError:  # macOS says so of zombies
            return True
        return True


def running_children() -> int:
    """How many children run."""
    return len(_alive)


@atexit.register
def kill_all_children() -> None:
    """End every child with all that it started, at once: for a process that ends without a word."""
    for pid in tuple(_alive):
        _signal_group(pid, _KILL)


def _forget_children() -> None:
    """Leave the children to the process that this one was forked from."""
    _alive.clear()
    _watchdog.forget()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_children)


def child_environment(
    inherit: InheritEnvironment, added: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a child.

    Args:
        inherit: What it inherits: what any program needs, everything, or these variables beside that.
        added: What it gets beside that; stronger.
        environ: What there is to inherit; by default this process's environment.
    """
    there = os.environ if environ is None else environ
    names = there.keys() if inherit == "all" else (*MINIMAL, *(() if inherit == "minimal" else inherit))
    inherited = {name: there[name] for name in names if name in there}
    return {name: value for name, value in inherited.items() if not value.startswith("()")} | dict(added)

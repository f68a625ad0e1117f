"""Signal handling, shutdown and standard streams of a serving process."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from contextlib import redirect_stdout as redirect_prints
from contextvars import ContextVar
from dataclasses import dataclass
from io import BufferedWriter, FileIO, TextIOWrapper
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import click

from bridge.errors import BridgeError
from bridge.signals import hangup_signals, has_terminal
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

    from typing_extensions import Buffer

    from bridge.server.server import Server

_logger = logging.getLogger("bridge.hosting")
T = TypeVar("T")

imported_target: ContextVar[str | None] = ContextVar("imported_target", default=None)
"""Target that a command imports now; None while it imports none."""

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
EXIT_SECONDS = 1.0
"""Maximum seconds that running threads have at the exit, and functions of `atexit` if those have not ended."""

_format: Callable[[str, str, str | None], str] | None = None
_interrupt_handlers: list[Callable[[], object]] = []


class HostingError(BridgeError):
    """A server process cannot run; the message gives the reason."""


class TerminatedError(BaseException):
    """A command has received a signal that ends it, and has closed what was open."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number
        """Exit code of the process, as shells count."""


def run_interruptible(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run a coroutine function in an event loop that Ctrl-C, SIGTERM and SIGHUP always end.

    Python's own loops miss a signal that arrives just when they begin to wait, and do not handle the other two: what
    is open would not be closed, and no function of `atexit` would run.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        TerminatedError: Another signal has ended it.
    """
    import asyncio  # noqa: PLC0415 - commands that need no loop start faster

    async def run() -> T:
        loop, task, ended_by = asyncio.get_running_loop(), asyncio.current_task(), None
        assert task is not None

        def end(number: int) -> None:
            nonlocal ended_by
            if number == signal.SIGINT and _interrupt_handlers:
                _interrupt_handlers[-1]()
                return
            ended_by = number
            task.cancel()

        with suppress(NotImplementedError, RuntimeError):  # Windows, and threads
            for number in (signal.SIGINT, signal.SIGTERM, *hangup_signals()):
                loop.add_signal_handler(number, end, number)
        try:
            return await function(*args)
        except asyncio.CancelledError:
            if ended_by == signal.SIGINT:
                raise KeyboardInterrupt from None
            if ended_by is not None:
                raise TerminatedError(ended_by) from None
            raise

    return asyncio.run(run())


@contextmanager
def on_interrupt(handler: Callable[[], object]) -> Iterator[None]:
    """Call a function at each Ctrl-C during this block, within `run_interruptible`; it does not end the command.

    The function of the innermost block is called, in the event loop.
    """
    _interrupt_handlers.append(handler)
    try:
        yield
    finally:
        _interrupt_handlers.remove(handler)


CLOSING_SECONDS = 4.5
"""Seconds to close after the drain; stdio servers of a gateway may have to be killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """Durations of a graceful shutdown."""

    delay_seconds: float = 0.0
    """Seconds after SIGTERM in which new calls are accepted."""
    timeout_seconds: float = 25.0
    """Seconds that running calls may take after that."""


class ShutdownSignals:
    """Signal handling of a server: the first signal starts the shutdown, a second one after SIGTERM ends the process.

    A second Ctrl-C only shortens the shutdown. SIGHUP is SIGTERM, and never the second signal: service managers send it
    after SIGTERM. Without a terminal it reloads, if the server can.

    Args:
        begin: Called on the first signal, in the main thread, between any two instructions.
        hurry: Called on a second SIGINT.
        last_act: Called before the process ends immediately, from any thread.
        times: Durations of the shutdown.
        reload: Called on SIGHUP without a terminal; None if the server cannot reload.
    """

    def __init__(
        self,
        begin: Callable[[], None],
        hurry: Callable[[], None],
        last_act: Callable[[], None],
        times: DrainTimes,
        reload: Callable[[], None] | None = None,
    ) -> None:
        self._reload = None if reload is None or has_terminal() else reload
        self.first: int | None = None
        """The first signal."""
        self._begin = begin
        self._hurry = hurry
        self._last_act = last_act
        self._seconds = times.delay_seconds + times.timeout_seconds + CLOSING_SECONDS
        self._is_terminated = Event()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handle signals during this block; main thread only."""
        Thread(target=self._watch, name="bridge-ending", daemon=True).start()
        numbers = (signal.SIGINT, signal.SIGTERM, *hangup_signals())
        before = {number: signal.signal(number, self._handle) for number in numbers}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    @property
    def is_drain(self) -> bool:
        """True after SIGTERM."""
        return self.first == signal.SIGTERM

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number not in {signal.SIGINT, signal.SIGTERM}:
            if self.first is not None:
                return
            if self._reload is not None:
                self._reload()
                return
            number = signal.SIGTERM
        if self.first is None:
            self.first = number
            if self.is_drain:
                self._is_terminated.set()
            self._begin()
        elif self.first == number == signal.SIGINT:
            self._hurry()
        else:
            # The handler may interrupt a write to a stream, so logging is not safe.
            with suppress(OSError):
                os.write(2, b"received a second signal; exiting at once\n")
            self._exit(128 + number)

    def _watch(self) -> None:
        self._is_terminated.wait()
        time.sleep(self._seconds)
        _logger.error("the shutdown takes longer than %g seconds; exiting at once", self._seconds)
        self._exit(1)

    def _exit(self, code: int) -> None:
        try:
            self._last_act()
        finally:
            os._exit(code)


def print_message(message: str, level: str = "info", traceback: str | None = None) -> None:
    """Write one diagnostic line to standard error.

    The level (``info``, ``warning`` or ``error``) is used by some formats; a traceback is appended in the plain one.
    """
    if _format is not None:
        text = _format(message, level, traceback)
    else:
        text = escape_controls(message if traceback is None else f"{message}\n{traceback.rstrip()}")
    click.echo(text, err=True)


def print_unserved_routes(server: Server) -> None:
    """Warn of the routes of a server that is served over stdio."""
    if server.routes:
        paths = ", ".join(route.path for route in server.routes)
        print_message(f"routes are served over HTTP alone, and not over stdio: {paths}", "warning")


def set_message_format(form: Callable[[str, str, str | None], str] | None) -> None:
    """Set the format of diagnostic lines, such as JSON; None for the plain one."""
    global _format  # noqa: PLW0603 - standard error is global
    _format = form


def exit_process(code: int) -> int:
    """Let the process end soon, although threads may run that cannot be stopped; return the exit code.

    The interpreter waits for such threads. If they run longer than `EXIT_SECONDS`, functions of `atexit` are run, for
    as long at most, and the process is ended.
    """
    if _running_threads():
        is_forced = Event()
        atexit.register(_wait_if_forced, is_forced)
        Thread(target=_force_exit, args=(code, is_forced), name="bridge-exit", daemon=True).start()
    return code


def _running_threads() -> list[Thread]:
    """Threads that the interpreter waits for at its exit."""
    return [each for each in threading.enumerate() if not (each.daemon or each is threading.main_thread())]


def _force_exit(code: int, is_forced: Event) -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    while threads := _running_threads():
        if (left_seconds := deadline - time.monotonic()) <= 0:
            break
        threads[0].join(left_seconds)
    else:
        return
    is_forced.set()
    ending = Thread(target=atexit._run_exitfuncs, daemon=True)  # noqa: SLF001 - there is no public way
    ending.start()
    ending.join(EXIT_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _wait_if_forced(is_forced: Event) -> None:
    """Keep the main thread, whose threads have ended after all, from running functions of `atexit` a second time."""
    if is_forced.is_set() and threading.current_thread() is threading.main_thread():
        Event().wait()


class _Lossy(FileIO):
    """File that drops what cannot be written, such as to a full disk, or to a pipe without a reader."""

    def write(self, data: Buffer, /) -> int:
        """Write data."""
        with suppress(OSError):
            if (written := super().write(data)) is not None:
                return written
        return memoryview(data).nbytes


def drop_unwritable_diagnostics() -> None:
    """Let no output to standard error fail for the rest of the process's life, since it is not worth a call."""
    if sys.platform != "win32" and sys.stderr is sys.__stderr__ and isinstance(sys.stderr, TextIOWrapper):
        lossy = BufferedWriter(_Lossy(2, "w", closefd=False))
        sys.stderr = TextIOWrapper(lossy, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)


@contextmanager
def redirect_stdout() -> Iterator[None]:
    """Redirect standard output, of this process and its children, to standard error during this block."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_prints(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def exit_code_of(code: int) -> int:
    """Return the exit code for the return code of a child, which is negative after a signal."""
    return code if code >= 0 else 128 - code


def spelled_exit_code(code: int) -> str:
    """Return the return code of a child in words."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"

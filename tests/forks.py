"""Python processes that are forked from one that has imported the package, so that no test waits for imports.

Such a process is real: it has its own ID, streams, signals, environment and working directory. Unlike one that
``python`` starts, it has modules of the package from the start; tests for which that matters start Python itself.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, TimeoutExpired
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TextIO

from tests import fork_client
from tests.fork_client import NUMBER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

if sys.platform != "win32":
    import fcntl
    import termios

IS_POSSIBLE = "forkserver" in get_all_start_methods()
COMMANDS = ("call", "chat", "inspect", "install", "list", "login", "logout", "pin", "serve", "status")
IMPORTED = (
    *(f"bridge.cli.{command}" for command in COMMANDS),
    *("bridge.cli.serve.gateway", "bridge.cli.serve.http", "bridge.cli.serve.stdio", "bridge.client"),
    *("bridge.hosting.httptools_protocol", "bridge.hosting.serve", "bridge.hosting.workers"),
    *("bridge.server.http.app", "bridge.server.limits.accounts", "bridge.server.sdk_server"),
    *("anyio._backends._asyncio", "filelock", "httpcore2", "mcp.client.auth", "openai", "truststore"),
    *("uvicorn.lifespan.on", "uvicorn.protocols.http.httptools_impl", "uvloop"),
)
"""Modules that every process has from the start. None of them reads environment variables that tests set."""


class ForkedPython:
    """A running Python, with the methods of `subprocess.Popen` that tests use.

    Args:
        arguments: Arguments after ``python``: ``-m`` and a module, or the path of a script; and their arguments.
        cwd: Working directory.
        env: Environment variables.
        streams: The three standard streams: descriptors, `subprocess.DEVNULL`, or None for pipes of this object.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path | str,
        env: Mapping[str, str],
        streams: Sequence[int | None] = (None, None, None),
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED))
        self.args = list(arguments)
        (stdin, self.stdin), (stdout, self.stdout), (stderr, self.stderr) = map(_ends, streams, "wrr")
        theirs = (stdin, stdout, stderr)
        self._process = context.Process(target=_run, args=(self.args, str(cwd), dict(env), theirs), daemon=True)
        self._process.start()
        for each in theirs:
            each.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            with suppress(BrokenPipeError):  # buffered output that nobody has read
                if stream is not None:
                    stream.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        """The exit code, or the negative number of the signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.returncode) is None:
            raise TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # as for a `subprocess.Popen` that has ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def popen(
    arguments: Sequence[str],
    *,
    cwd: Path | str,
    env: Mapping[str, str],
    streams: Sequence[int | None] = (None, None, None),
) -> ForkedPython | Popen[str]:
    """Start Python: by a fork, unless the program follows ``-c``, or the environment has options for Python.

    Args:
        arguments: As for `ForkedPython`, as are the others.
    """
    told_python = {name: value for name, value in env.items() if name.startswith("PYTHON")}
    if IS_POSSIBLE and arguments[0] != "-c" and told_python.items() <= os.environ.items():
        return ForkedPython(arguments, cwd=cwd, env=env, streams=streams)
    stdin, stdout, stderr = (PIPE if stream is None else stream for stream in streams)
    command = [sys.executable, *arguments]
    return Popen(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, encoding="utf-8")


def run(
    arguments: Sequence[str], *, cwd: Path | str, env: Mapping[str, str], timeout: float, stdin: str = ""
) -> CompletedProcess[str]:
    """Run Python until it ends.

    Args:
        arguments: As for `ForkedPython`, as are ``cwd`` and ``env``.
        timeout: Seconds after which it is killed.
        stdin: Standard input.

    Raises:
        TimeoutExpired: It was killed.
    """
    with popen(arguments, cwd=cwd, env=env) as process, ThreadPoolExecutor() as readers:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = [readers.submit(stream.read) for stream in (process.stdout, process.stderr)]
        with suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        try:
            code = process.wait(timeout)
        except TimeoutExpired:
            process.kill()
            raise
        return CompletedProcess(list(arguments), code, *(text.result() for text in said))


def command(*arguments: str) -> list[str]:
    """Return a command that runs Python by a fork, for what starts commands itself, such as a client over stdio.

    The process that it starts passes SIGTERM and SIGINT on to the fork, and takes the fork with it when it is killed.

    Args:
        arguments: As for `ForkedPython`.
    """
    if not IS_POSSIBLE:
        return [sys.executable, *arguments]
    return [sys.executable, "-S", "-E", fork_client.__file__, _fork_server(), *arguments]


def entry(*arguments: str, **settings: object) -> dict[str, Any]:
    """Return a server over stdio, as a configuration has it, that is run as `command` says.

    Args:
        arguments: As for `ForkedPython`.
        settings: Its other keys.
    """
    program, *rest = command(*arguments)
    return {"command": program, "args": rest, **settings}


@cache
def _fork_server() -> str:
    """Start the process that forks for `command`, which ends with this one; return its address."""
    folder = TemporaryDirectory(prefix="forks")
    address = str(Path(folder.name) / "address")
    context = get_context("forkserver")
    context.set_forkserver_preload(list(IMPORTED))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        process = context.Process(target=_accept_forks, args=(listener,))
        process.start()
    atexit.register(folder.cleanup)
    atexit.register(process.terminate)  # before multiprocessing waits for it
    return address


def _accept_forks(listener: socket.socket) -> None:
    """Start a process for each `fork_client`."""
    while True:
        connection, _ = listener.accept()
        with connection:
            get_context("fork").Process(target=_fork_for, args=(connection,)).start()


def _fork_for(connection: socket.socket) -> None:
    """Run Python for a `fork_client`, until either ends."""
    length, descriptors, *_ = socket.recv_fds(connection, NUMBER_BYTES, 3)
    with connection.makefile("rb") as reader:
        count, *words = map(os.fsdecode, reader.read(int.from_bytes(length, "big")).split(b"\0"))
    arguments, (cwd, *settings) = words[: int(count)], words[int(count) :]
    streams: list[Connection[Any, Any]] = list(map(Connection, descriptors))
    environment = dict(setting.split("=", 1) for setting in settings)
    process = get_context("fork").Process(target=_run, args=(arguments, cwd, environment, streams))
    process.start()
    for stream in streams:
        stream.close()
    assert process.pid is not None
    with suppress(OSError):  # the client was killed
        connection.sendall(process.pid.to_bytes(NUMBER_BYTES, "big"))
        if process.sentinel not in wait([process.sentinel, connection]):
            process.kill()
        process.join()
        assert process.exitcode is not None
        connection.sendall(process.exitcode.to_bytes(NUMBER_BYTES, "big", signed=True))
    process.kill()


def _ends(stream: int | None, mode: str) -> tuple[Connection[Any, Any], TextIO | None]:
    """Return the ends of a stream: the process's, and this one's if it is a pipe."""
    if stream is not None:
        return Connection(os.open(os.devnull, os.O_RDWR) if stream == DEVNULL else os.dup(stream)), None
    reader, writer = os.pipe()
    theirs, ours = (reader, writer) if mode == "w" else (writer, reader)
    text: Any = os.fdopen(ours, mode, encoding="utf-8")
    return Connection(theirs), text


def _run(arguments: list[str], cwd: str, env: dict[str, str], streams: Sequence[Connection[Any, Any]]) -> None:
    """Become the process that ``python`` would be, after the fork."""
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    if os.isatty(0):  # the terminal controls the process, so that Ctrl-C is a signal
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115 - for good
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background inherit SIG_IGN
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, cwd)
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out

"""Python processes that are forked from one that has imported the package, so that no test waits for imports.

Such a process is real: it has its own ID, streams, signals, environment and working directory. Unlike one that
``python`` starts, it has modules of the package from the start; tests for which that matters start Python itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from subprocess import DEVNULL, PIPE, CompletedProcess, Popen, TimeoutExpired
from tempfile import mkdtemp
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TextIO

from tests import fork_client
from tests.fork_client import NUMBER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IS_POSSIBLE = hasattr(os, "fork")
ROOT = Path(__file__).parents[1]
COMMANDS = (
    *("call", "chat", "doctor", "inspect", "install", "list", "login", "logout", "pin", "prompt", "read", "serve"),
    *("status", "task"),
)
IMPORTED = (
    *(f"bridge.cli.{command}" for command in COMMANDS),
    *("bridge.cli.serve.gateway", "bridge.cli.serve.http", "bridge.cli.serve.stdio", "bridge.client"),
    *("bridge.client.auth.login", "bridge.client.connection.supervisor", "bridge.client.transports.http_client"),
    *(
        "bridge.client.transports.sse",
        "bridge.client.transports.stdio_lines",
        "bridge.client.transports.streamable_http",
    ),
    *("bridge.doctor.rules", "bridge.hosting.http.httptools_parser", "bridge.hosting.serve", "bridge.hosting.workers"),
    *("bridge.models.openai.model", "bridge.prompts.function", "bridge.resources.function", "bridge.server.auth.jwt"),
    *("bridge.server.http.app", "bridge.server.limits.accounts", "bridge.server.stdio.server"),
    *(
        "bridge.server.unmatched_names",
        "bridge.service.ai_service",
        "bridge.telemetry.tasks",
        "bridge.tools.search.index",
    ),
    *("anyio._backends._asyncio", "docstring_parser", "encodings.idna", "filelock", "httpcore2", "jsonschema"),
    *("mcp.client.auth", "openai.resources.chat.completions", "prompt_toolkit", "rich.console", "truststore"),
    *("uvicorn.lifespan.on", "uvicorn.loops.auto", "uvloop"),
)
"""Modules that every process has from the start. None of them reads environment variables that tests set."""
_STARTING = Lock()


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
        self.args = list(arguments)
        (stdin, self.stdin), (stdout, self.stdout), (stderr, self.stderr) = map(_ends, streams, "wrr")
        theirs = (stdin, stdout, stderr)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(_fork_server())
            self.pid: int = fork_client.start(client, self.args, str(cwd), env, theirs)
            self._connection: Connection[Any, Any] = Connection(client.detach())
        for each in theirs:
            os.close(each)
        self._returncode: int | None = None
        self._lock = Lock()

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
        with self._lock:
            if self._returncode is None and self._connection.poll():
                self._returncode = fork_client.number(os.read(self._connection.fileno(), NUMBER_BYTES))
        return self._returncode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while (code := self.returncode) is None:
            if not wait([self._connection], timeout):
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


def _fork_server() -> str:
    """Return the address of the process that forks; it is started once, whichever threads need it at the same time."""
    with _STARTING:
        return _started_fork_server()


@cache
def _started_fork_server() -> str:
    """Start the process that forks, which ends with this one; return its address."""
    folder = mkdtemp(prefix="forks")  # which it removes
    address = str(Path(folder) / "address")
    ours, theirs = socket.socketpair()
    with theirs, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        number = listener.fileno()
        command = [sys.executable, "-m", "tests.fork_server", str(number), *IMPORTED]
        process = Popen(command, cwd=ROOT, stdin=theirs.fileno(), pass_fds=[number])
    assert ours.recv(1), "the fork server did not start"  # deadlines of tests begin after its imports
    atexit.register(process.wait)
    atexit.register(ours.close)  # before it waits
    return address


def _ends(stream: int | None, mode: str) -> tuple[int, TextIO | None]:
    """Return the ends of a stream: the process's, and this one's if it is a pipe."""
    if stream is not None:
        return os.open(os.devnull, os.O_RDWR) if stream == DEVNULL else os.dup(stream), None
    reader, writer = os.pipe()
    theirs, ours = (reader, writer) if mode == "w" else (writer, reader)
    text: Any = os.fdopen(ours, mode, encoding="utf-8")
    return theirs, text

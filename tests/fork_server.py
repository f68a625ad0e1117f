"""The process that `tests.forks` forks: it has imported the package, and ends with the one that has started it.

A client sends a message over a Unix socket, with the descriptors of three standard streams: what Python is to run.
It receives the ID of the process, and later the exit code. A client that hangs up ends the process.

Its arguments are the descriptor of the socket and the modules that it imports. Its standard input is a socket, to which
it writes a line after the imports.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import fork_client
from tests.fork_client import NUMBER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkProcess

if sys.platform != "win32":
    import fcntl
    import termios


def serve(listener: socket.socket) -> None:
    """Run Python for each client until standard input ends, which it does when its writer ends; then kill all."""
    running: dict[socket.socket, ForkProcess] = {}
    while True:
        ready = wait([0, listener, *running, *(process.sentinel for process in running.values())])
        if 0 in ready:
            break
        if listener in ready:
            connection, _ = listener.accept()
            with suppress(EOFError, OSError):  # the client was killed
                running[connection] = _started(connection, [listener, connection, *running])
        for connection, process in list(running.items()):
            if process.sentinel in ready or connection in ready:
                del running[connection]
                _end(connection, process)
    for connection, process in running.items():
        _end(connection, process)


def _started(connection: socket.socket, private: Sequence[socket.socket]) -> ForkProcess:
    """Start what a client asks for.

    Args:
        connection: Connection of the client.
        private: Sockets that the process closes: a client waits for the end of its connection.

    Raises:
        EOFError: The client has ended.
        OSError: As `EOFError`.
    """
    length, descriptors, *_ = socket.recv_fds(connection, NUMBER_BYTES, 3)
    with connection.makefile("rb") as reader:
        message = reader.read(fork_client.number(length))
    if len(message) < fork_client.number(length):
        raise EOFError
    count, *words = map(os.fsdecode, message.split(b"\0"))
    arguments, (cwd, *settings) = words[: int(count)], words[int(count) :]
    streams: list[Connection[Any, Any]] = list(map(Connection, descriptors))
    environment = dict(setting.split("=", 1) for setting in settings)
    process = get_context("fork").Process(target=_run, args=(arguments, cwd, environment, streams, private))
    process.start()
    for stream in streams:
        stream.close()
    assert process.pid is not None
    with suppress(OSError):  # the client was killed, which ends the process too
        connection.sendall(process.pid.to_bytes(NUMBER_BYTES, "big"))
    return process


def _end(connection: socket.socket, process: ForkProcess) -> None:
    """End a process unless it has ended, and tell its client the exit code."""
    process.kill()
    process.join()
    assert process.exitcode is not None
    with connection, suppress(OSError):
        connection.sendall(process.exitcode.to_bytes(NUMBER_BYTES, "big", signed=True))


def _run(
    arguments: list[str],
    cwd: str,
    env: dict[str, str],
    streams: Sequence[Connection[Any, Any]],
    private: Sequence[socket.socket],
) -> None:
    """Become the process that ``python`` would be, after the fork."""
    for inherited in private:
        inherited.close()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    if os.isatty(0):  # the terminal controls the process, so that Ctrl-C is a signal
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115 - for good
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and with them this process
    descriptor, *imported = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as bound:
        address = Path(bound.getsockname())
        try:
            for name in imported:
                import_module(name)
            gc.collect()
            gc.freeze()  # a fork neither visits nor copies what is imported
            os.write(0, b"\n")
            serve(bound)
        finally:
            address.unlink()
            address.parent.rmdir()

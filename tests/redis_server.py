"""A real Redis in a process of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class RedisServer:
    """A Redis that can be stopped, and is empty when it is started again.

    Args:
        folder: Its working directory.
        options: Further options of the command.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed")
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        self._command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._command += options
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

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Suspend it in this block: connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Run a Redis in this block."""
    server = RedisServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.end()

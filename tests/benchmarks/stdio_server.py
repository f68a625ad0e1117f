"""A server over stdio, and its pipes."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era, line, request
from tests.benchmarks.processes import LIMIT_SECONDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator


class StdioServer:
    """A running server, which reads and writes lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._input: IO[bytes] = process.stdin
        self._output: IO[bytes] = process.stdout

    def send(self, lines: bytes) -> None:
        """Write one line, or several."""
        self._input.write(lines)
        self._input.flush()

    def receive(self) -> bytes:
        """Return the next line."""
        received = self._output.readline()
        assert received, "the server ended"
        return received

    def answer(self, text: bytes) -> bytes:
        """Send one line, and return the response."""
        self.send(text)
        return self.receive()

    def open(self, era: Era) -> None:
        """Make the handshake, in the era that has one."""
        if era is Era.HANDSHAKE:
            self.answer(line(INITIALIZE))
            self.send(line(INITIALIZED))

    def list_first(self, era: Era) -> bytes:
        """Make the handshake, and list the tools."""
        self.open(era)
        return self.answer(line(request(era, "tools/list")))


@contextmanager
def serving(path: str, *, tools: int = 1, limit_seconds: float = LIMIT_SECONDS) -> Iterator[StdioServer]:
    """Serve a file, in a process that has just been started.

    Args:
        path: The file.
        tools: Number of tools, for a file that can have many.
        limit_seconds: Maximum lifetime of the server.
    """
    environment = os.environ | {"BENCHMARK_TOOLS": str(tools)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = ("-m", "bridge", "serve", path)
    with running(*command, limit_seconds=limit_seconds, env=environment, **pipes) as process:
        yield StdioServer(process)

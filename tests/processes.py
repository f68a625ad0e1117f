"""A server in a process of its own, whose output is kept."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from tests import forks

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

    from tests.forks import ForkedPython

ROOT = Path(__file__).parents[1]
DEADLINE_SECONDS = 60
READY = re.compile(r"serving .* at (http://[^/\s]+)")


class ServerProcess:
    """A process that writes ``serving … at URL`` to standard error when it listens."""

    def __init__(self, process: ForkedPython | subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process = process
        self._lines: list[str] = []
        while not (found := READY.search("".join(self._lines))):
            line = process.stderr.readline()
            assert line, f"the server did not start: {self._lines}"
            self._lines.append(line)
        self.origin = found[1]
        """Its origin, such as ``http://127.0.0.1:4711``."""
        self._reader = Thread(target=self._lines.extend, args=(process.stderr,))
        self._reader.start()

    def join(self) -> None:
        """Wait until all of its output has been read."""
        self._reader.join(DEADLINE_SECONDS)

    @property
    def log(self) -> str:
        """Return all of its output, once it has ended."""
        self.join()
        return "".join(self._lines)


@contextmanager
def serving(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """Run Python with these arguments and environment variables; the process is ended with the context."""
    with forks.popen(arguments, cwd=ROOT, env=os.environ | (environment or {})) as process:
        server: ServerProcess | None = None
        try:
            server = ServerProcess(process)
            yield server
        finally:
            process.terminate()
            if server is not None:
                server.join()

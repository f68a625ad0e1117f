"""Fixtures that run the command line as real processes, with an empty home and working directory."""

from __future__ import annotations

import logging
import os
import queue
import threading
from contextlib import contextmanager
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bridge.hosting.process import set_message_format
from tests import forks

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.forks import ForkedPython

DEADLINE_SECONDS = 40


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restore what a command that runs in this process sets of logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {each: each.level for each in [*root.manager.loggerDict.values()] if isinstance(each, logging.Logger)}
    yield
    root.handlers[:], root.level = handlers, level
    for each in root.manager.loggerDict.values():
        if isinstance(each, logging.Logger):
            each.setLevel(levels.get(each, logging.NOTSET))
    logging.captureWarnings(capture=False)
    set_message_format(None)


CALCULATOR = '''
    """Arithmetic."""
    from bridge import ToolError, tool

    print("printed at import")


    @tool(title="Addition")
    def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        print("printed in a call")
        return a + b


    @tool
    def shout(text: str, times: int = 1) -> str:
        """Say it loudly."""
        return (text.upper() + "!") * times


    @tool
    def divide(a: float, b: float) -> float:
        """Divide."""
        if b == 0:
            raise ToolError("division by zero: give another b")
        return a / b


    @tool
    def crash() -> str:
        """Raise."""
        return secret_variable
'''


class Run(Protocol):
    """Runs ``bridge`` and waits for its end."""

    def __call__(
        self, *arguments: str, env: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]: ...


class Process:
    """A running ``bridge``, whose standard error is read line by line."""

    def __init__(self, popen: ForkedPython | subprocess.Popen[str]) -> None:
        self.popen = popen
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line_with(self, text: str) -> str:
        """Return the next line on standard error that contains a text."""
        while (line := self._lines.get(timeout=DEADLINE_SECONDS)) is not None:
            self.seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in {self.seen}")

    def url(self) -> str:
        """Return the URL of the server after it has started."""
        return self.line_with("serving ").rpartition(" at ")[2]

    def end(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(DEADLINE_SECONDS)
        while (line := self._lines.get(timeout=DEADLINE_SECONDS)) is not None:
            self.seen.append(line)
        return code


class Start(Protocol):
    """Starts ``bridge`` for the time of a context."""

    def __call__(self, *arguments: str, env: dict[str, str] | None = None) -> Any: ...


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The working directory of the commands: it holds ``calculator.py``."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "calculator.py").write_text(dedent(CALCULATOR), encoding="utf-8")
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home directory of the commands."""
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """Environment of the commands, without settings of the developer for bridge and Python."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BRIDGE_", "XDG_", "PYTHON"))}
    return kept | {"HOME": str(home), "USERPROFILE": str(home), "APPDATA": str(home / "AppData")}


@pytest.fixture
def run(directory: Path, environment: dict[str, str]) -> Run:
    """See `Run`."""

    def run(*arguments: str, env: dict[str, str] | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forks.run(
            ["-m", "bridge", *arguments],
            cwd=directory,
            env=environment | (env or {}),
            timeout=DEADLINE_SECONDS,
            stdin=stdin,
        )

    return run


@pytest.fixture
def start(directory: Path, environment: dict[str, str]) -> Start:
    """See `Start`."""

    @contextmanager
    def start(*arguments: str, env: dict[str, str] | None = None) -> Iterator[Process]:
        with forks.popen(["-m", "bridge", *arguments], cwd=directory, env=environment | (env or {})) as popen:
            try:
                yield Process(popen)
            finally:
                if popen.poll() is None:
                    popen.terminate()
                    popen.wait(DEADLINE_SECONDS)

    return start

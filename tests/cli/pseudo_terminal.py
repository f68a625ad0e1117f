"""A pseudo-terminal that controls a process of ``bridge``, as a real terminal does, and the keys typed there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
from codecs import getincrementaldecoder
from pathlib import Path
from typing import TYPE_CHECKING

from tests import forks

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_SECONDS = 60
CTRL_C, CTRL_D, UP, TAB = "\x03", "\x04", "\x1b[A", "\t"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
"""Control sequences: CSI, OSC, character sets, keypad and cursor."""
_MAX_SEQUENCE_CHARS = 32


class Terminal:
    """A process at a pseudo-terminal, with methods for its keys and output.

    Attributes:
        raw: The whole output, with control sequences.
        seen: The output without control sequences after the last text that `until` waited for.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        size: tuple[int, int] = (40, 200),
    ) -> None:
        self.raw = ""
        self.seen = ""
        self._held = ""
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._fd, theirs = pty.openpty()
        _resize(theirs, size)
        environment = os.environ | {"OPENAI_API_KEY": "test", "TERM": "xterm-256color"} | dict(env or {})
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
            if name not in (env or {}):
                environment.pop(name, None)
        streams = (theirs, theirs if stdout is None else stdout, theirs)
        self.process = forks.popen(
            ["-m", "bridge", *arguments], cwd=cwd or Path.cwd(), env=environment, streams=streams
        )
        os.close(theirs)

    def until(self, text: str) -> str:
        """Read until a text is in the output; return and discard the output before it."""
        while text not in self.seen:
            assert self._read(), f"{text!r} did not come after {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    def modes(self) -> list[int]:
        """Modes of input, output and lines, as raw or cooked."""
        return [flags for flags in termios.tcgetattr(self._fd)[:4] if isinstance(flags, int)]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.type(CTRL_C)

    def ended(self) -> int:
        """Read to the end of the output, and return the exit code."""
        try:
            while self._read():
                pass
            return self.process.wait(DEADLINE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._fd)

    def _read(self) -> bool:
        """Read a piece; False at the end."""
        ready, _, _ = select.select([self._fd], [], [], DEADLINE_SECONDS)
        assert ready, f"nothing came after {self.seen!r}"
        try:
            piece = os.read(self._fd, 65536)
        except OSError:  # EIO on Linux: the other end is closed
            return False
        text = self._decoder.decode(piece)
        self.raw += text
        self._held += text
        last = self._held.rfind("\x1b")
        is_cut = last >= 0 and _SEQUENCE.match(self._held, last) is None
        whole = self._held[:last] if is_cut and len(self._held) - last < _MAX_SEQUENCE_CHARS else self._held
        self._held = self._held[len(whole) :]
        self.seen += _SEQUENCE.sub("", whole).replace("\r", "")
        return bool(piece)


def _resize(fd: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

"""Lines that a user types at a terminal: edited with prompt-toolkit if the extra ``cli`` is installed, else plain."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio import from_thread, lowlevel

from bridge.cli.terminal import is_capable, is_installed, wants_colour
from bridge.hosting.process import on_interrupt
from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from prompt_toolkit import PromptSession


class InputInterruptedError(Exception):
    """The user pressed Ctrl-C at a prompt."""


class LineInput(ABC):
    """Lines of standard input, one prompt at a time; use it within the event loop of `run_interruptible`."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()

    @property
    def is_there(self) -> bool:
        """True if standard input is a terminal."""
        return sys.stdin.isatty()

    async def line(self, prompt: str) -> str | None:
        """Read the next line; None at the end of the input (Ctrl-D).

        Raises:
            InputInterruptedError: The user pressed Ctrl-C.
        """
        return await self._uninterrupted(self._read, prompt)

    async def question(self, prompt: str) -> str | None:
        """Read the next question of a conversation, which may have several lines; otherwise like `line`."""
        return await self._uninterrupted(self._read_question, prompt)

    async def _uninterrupted(self, read: Callable[[str], Awaitable[str | None]], prompt: str) -> str | None:
        async with self._lock:
            with anyio.CancelScope() as scope, on_interrupt(scope.cancel):
                return await read(escape_controls(prompt))
            raise InputInterruptedError

    async def confirms(self, question: str) -> bool | None:
        """Ask a yes-or-no question; None at the end of the input.

        Raises:
            InputInterruptedError: The user pressed Ctrl-C.
        """
        while True:
            answer = await self.line(f"{question} [y/N]: ")
            if answer is None or answer.strip().lower() in {"y", "yes", "n", "no", ""}:
                return None if answer is None else answer.strip().lower() in {"y", "yes"}

    @abstractmethod
    async def _read(self, prompt: str) -> str | None:
        """Show the prompt and read a line."""

    async def _read_question(self, prompt: str) -> str | None:
        return await self._read(prompt)

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop reading."""


class PlainInput(LineInput):
    """Lines of standard input, a terminal or not, without editing. A line after Ctrl-C answers the next prompt."""

    def __init__(self) -> None:
        super().__init__()
        self._send, self._lines = anyio.create_memory_object_stream[str | None](math.inf)
        self._is_reading = False

    async def _read(self, prompt: str) -> str | None:
        if self.is_there:
            click.echo(prompt, nl=False, err=True)
        if not self._is_reading:
            self._is_reading = True
            Thread(target=self._read_line, args=(lowlevel.current_token(),)).start()
        try:
            return await self._lines.receive()
        except BaseException:
            if self.is_there:
                click.echo(err=True)  # the next output starts on a line of its own
            raise

    def close(self) -> None:
        """Stop reading; a thread may still wait for a line."""
        self._send.close()
        self._lines.close()

    def _read_line(self, token: lowlevel.EventLoopToken) -> None:
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError:
            line = "\n"
        with suppress(RuntimeError):  # the event loop has ended
            from_thread.run_sync(self._take, line.rstrip("\n") if line else None, token=token)

    def _take(self, line: str | None) -> None:
        self._is_reading = False
        with suppress(anyio.ClosedResourceError):
            self._send.send_nowait(line)


class EditedInput(LineInput):
    """Lines of a terminal, edited with prompt-toolkit."""

    async def _read(self, prompt: str) -> str | None:
        return await self._prompt(edit_session(), prompt)

    async def _prompt(self, session: PromptSession[str], prompt: str, **options: Any) -> str | None:
        try:
            return await session.prompt_async([("", prompt)], handle_sigint=False, **options)
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise InputInterruptedError from None


def edit_session(**options: Any) -> PromptSession[str]:
    """Create a prompt on standard error; without a history, unless the options have one."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra, and slow to import
    from prompt_toolkit.history import DummyHistory  # noqa: PLC0415 - as above
    from prompt_toolkit.input import create_input  # noqa: PLC0415 - as above
    from prompt_toolkit.output import ColorDepth, create_output  # noqa: PLC0415 - as above
    from prompt_toolkit.output.vt100 import Vt100_Output  # noqa: PLC0415 - as above

    output = create_output(stdout=sys.stderr)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # an answer of the terminal after the prompt would be read as typed
    depth = None if wants_colour(sys.stderr) else ColorDepth.DEPTH_1_BIT
    chosen = {"history": DummyHistory(), "color_depth": depth} | options
    return PromptSession(input=create_input(sys.stdin), output=output, **chosen)


def can_edit() -> bool:
    """True if lines can be edited: the extra is installed, and input and standard error are a capable terminal."""
    return sys.stdin.isatty() and is_capable(sys.stderr) and is_installed("prompt_toolkit")


def line_input() -> LineInput:
    """The best input that there is."""
    return EditedInput() if can_edit() else PlainInput()

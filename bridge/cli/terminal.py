"""Person: who sits at the terminal, is asked for lines, and may interrupt an answer."""

from __future__ import annotations

import math
import signal
import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

import anyio
import click
from anyio import from_thread, lowlevel

from bridge.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", ""})


class Person:
    """Who writes the lines of standard input; use it within the event loop."""

    def __init__(self) -> None:
        self._send, self._lines = anyio.create_memory_object_stream[str | None](math.inf)
        self._is_reading = False

    @property
    def is_there(self) -> bool:
        """Standard input is a terminal."""
        return sys.stdin.isatty()

    async def line(self, prompt: str) -> str | None:
        """The next line; None at the end of the input. What is written after a question was given up answers the next.

        Args:
            prompt: What is shown at a terminal.
        """
        if self.is_there:
            click.echo(escape_controls(prompt), nl=False, err=True)
        if not self._is_reading:
            self._is_reading = True
            Thread(target=self._read, args=(lowlevel.current_token(),)).start()
        return await self._lines.receive()

    async def confirms(self, question: str) -> bool:
        """Whether the answer to a question is yes; the end of the input is a no."""
        while True:
            answer = await self.line(f"{question} [y/N]: ")
            if answer is None or answer.strip().lower() in _NO:
                return False
            if answer.strip().lower() in _YES:
                return True

    def close(self) -> None:
        """Ask nothing any more."""
        self._send.close()
        self._lines.close()

    def _read(self, token: lowlevel.EventLoopToken) -> None:
        line = sys.stdin.readline()
        with suppress(RuntimeError):  # the event loop has ended
            from_thread.run_sync(self._take, line.rstrip("\n") if line else None, token=token)

    def _take(self, line: str | None) -> None:
        self._is_reading = False
        with suppress(anyio.ClosedResourceError):
            self._send.send_nowait(line)


async def interruptible(work: Callable[[], Awaitable[int]]) -> int | None:
    """Do something that Ctrl-C cancels, and nothing else.

    Args:
        work: What is done.

    Returns:
        What it returned; None where it was interrupted.

    Raises:
        Exception: What it raised.
    """
    if sys.platform == "win32":  # where an event loop hears of no signals
        return await work()
    code, failure = None, None
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                async for _ in signals:
                    group.cancel_scope.cancel()

            group.start_soon(cancel)
            try:
                code = await work()
            except Exception as error:  # noqa: BLE001 - raised outside the group, which would wrap it
                failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code

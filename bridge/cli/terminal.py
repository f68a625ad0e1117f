"""Terminal output, progress bar and interactive input."""

from __future__ import annotations

import json
import math
import signal
import sys
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import anyio
import click
from anyio import from_thread, lowlevel

from bridge.text import escape_controls, escaped_json
from bridge.tools.channel import LocalChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no", ""})
_STEPS = 1000
_MAX_LABEL_CHARS = 40


class InteractiveInput:
    """Interactive lines of standard input; use it within the event loop."""

    def __init__(self) -> None:
        self._send, self._lines = anyio.create_memory_object_stream[str | None](math.inf)
        self._is_reading = False

    @property
    def is_there(self) -> bool:
        """True if standard input is a terminal."""
        return sys.stdin.isatty()

    async def line(self, prompt: str) -> str | None:
        """Read the next line; None at the end of the input. A line after a cancelled prompt answers the next one."""
        if self.is_there:
            click.echo(escape_controls(prompt), nl=False, err=True)
        if not self._is_reading:
            self._is_reading = True
            Thread(target=self._read, args=(lowlevel.current_token(),)).start()
        return await self._lines.receive()

    async def confirms(self, question: str) -> bool:
        """Ask a yes-or-no question; the end of the input counts as no."""
        while True:
            answer = await self.line(f"{question} [y/N]: ")
            if answer is None or answer.strip().lower() in _NO:
                return False
            if answer.strip().lower() in _YES:
                return True

    def close(self) -> None:
        """Stop reading."""
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


async def run_interruptible(work: Callable[[], Awaitable[int]]) -> int | None:
    """Run a function that Ctrl-C cancels; return its result, or None after an interruption."""
    if sys.platform == "win32":  # event loops on Windows do not support signals
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


def write_data(text: str) -> None:
    """Write data and a newline to standard output, as UTF-8.

    On a terminal, control characters are escaped, since the data may be foreign.
    """
    if sys.stdout.isatty():
        text = escape_controls(text)
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def write_content(content: str | bytes) -> None:
    """Write the content of a resource to standard output, unchanged.

    On a terminal, control characters are escaped, and a last line without an end gets one.
    """
    if isinstance(content, str):
        if sys.stdout.isatty():
            content = escape_controls(content) + ("" if content.endswith("\n") else "\n")
        content = content.encode("utf-8", "replace")
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_json(data: Any) -> None:
    """Write indented JSON, with null for infinity and NaN; control characters are escaped on a terminal."""
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:  # foreign schemas may contain infinity
        finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
        text = json.dumps(finite, indent=2, ensure_ascii=False)
    write_data(escaped_json(text) if sys.stdout.isatty() else text)


class TerminalProgress(LocalChannel):
    """Progress display on standard error, if it is a terminal."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._bar: Any = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Update the progress bar; without a total, print a line."""
        if not self._is_watched:
            return
        label = escape_controls(" ".join((message or "").split()))[:_MAX_LABEL_CHARS]
        if not total or total <= 0:
            self._end_bar()
            click.echo(f"{label or 'done so far'}: {progress:g}", err=True)
            return
        if self._bar is None:
            self._bar = click.progressbar(length=_STEPS, file=sys.stderr, show_eta=False).__enter__()
        self._bar.label = label
        step = min(max(round(progress / total * _STEPS), 0), _STEPS)
        self._bar.update(step - self._bar.pos)
        self._bar.render_progress()

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_bar()

"""Channel of the tool of a command: progress on a terminal, questions to the user, and the limit of time."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar, cast

import anyio
import click

from bridge.cli.terminal import console_for, is_rich
from bridge.errors import ToolTimeoutError
from bridge.text import escape_controls
from bridge.tools.channel import LocalChannel
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.tools.questions import Answer, Question

_STEPS = 1000
_MAX_LABEL_CHARS = 40
T = TypeVar("T")


class CommandChannel(LocalChannel):
    """Progress on standard error, if it is a terminal, and questions to the user.

    In its block, output to the terminal, such as of logs and tools, does not share a line with the progress.

    Args:
        answerer: Answers questions; None refuses them.
    """

    wants_logs = False

    def __init__(self, answerer: QuestionAnswerer | None = None) -> None:
        self.has_listener = answerer is not None
        self._answerer = answerer
        self._limit: anyio.CancelScope | None = None
        self._display = _display()
        self._streams = ExitStack()
        if answerer is not None:
            answerer.before_asking = self.hide

    @property
    def peer(self) -> object:
        """This command as the one client, whose abandoned calls do not prevent further questions."""
        return self

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the progress: a bar with a total, a spinner without one."""
        if self._display is not None:
            label = escape_controls(" ".join((message or "").split()))[:_MAX_LABEL_CHARS]
            self._display.show(progress, total if total and total > 0 else None, label)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Answer questions; the limit of `within` does not count the time that this takes."""
        if self._answerer is None:
            return await super().ask(questions)
        limit = self._limit
        if limit is None:
            return await self._answerer.ask(questions, InvocationContext())
        left, limit.deadline = limit.deadline - anyio.current_time(), math.inf
        try:
            return await self._answerer.ask(questions, InvocationContext())
        finally:
            limit.deadline = anyio.current_time() + left

    async def within(self, seconds: float, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run a function within a time that does not count questions.

        Raises:
            ToolTimeoutError: The time is over.
        """
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as self._limit:
            return await work()
        raise ToolTimeoutError(name, seconds)

    def hide(self) -> None:
        """Remove the progress from the terminal until the next report."""
        if self._display is not None:
            self._display.hide()

    def __enter__(self) -> Self:
        if self._display is not None:
            for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
                if stream.isatty():
                    self._streams.enter_context(redirect(cast("TextIO", _Interrupting(stream, self._display))))
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        self.hide()


class _Progress(ABC):
    """Progress on standard error, of which no other output shares the line; used from any thread."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._lock = RLock()
        self._is_drawn = False
        self._is_interrupted = False
        self._is_mid_line = False

    def show(self, progress: float, total: float | None, label: str) -> None:
        """Draw the progress."""
        with self._lock:
            if self._is_mid_line:
                self._stream.write("\n")
            self._draw(progress, total, label)
            self._is_interrupted = self._is_mid_line = False

    def hide(self) -> None:
        """Erase the progress until the next report."""
        with self._lock:
            if self._is_drawn:
                self._erase()
            self._is_drawn = self._is_interrupted = False

    def interrupt(self, text: str, stream: TextIO) -> int:
        """Write other output in place of the progress, which is drawn again below its last line."""
        with self._lock:
            is_interrupted = self._is_drawn or self._is_interrupted
            self.hide()
            written = stream.write(text)
            stream.flush()
            self._is_mid_line = not text.endswith("\n")
            self._is_interrupted = is_interrupted and (self._is_mid_line or not self._draw_again())
            return written

    @abstractmethod
    def _draw(self, progress: float, total: float | None, label: str) -> None:
        """Draw a report."""

    @abstractmethod
    def _erase(self) -> None:
        """Erase what is drawn, or end its line."""

    def _draw_again(self) -> bool:
        """Draw the last report; False if it has to wait for the next."""
        return False


class _RichProgress(_Progress):
    """Bar or spinner of rich, which vanishes at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Any = None
        self._has_total = False

    def _draw(self, progress: float, total: float | None, label: str) -> None:
        from rich.progress import (  # noqa: PLC0415 - an extra
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        if self._shown is None or self._has_total != (total is not None):
            self.hide()
            self._has_total = total is not None
            parts = [BarColumn(), TaskProgressColumn()] if self._has_total else [TextColumn("{task.completed:g}")]
            text = TextColumn("{task.description}", markup=False)
            self._shown = Progress(
                SpinnerColumn(), text, *parts, TimeElapsedColumn(),
                console=console_for(self._stream), transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._shown.add_task("", total=None)
        self._shown.update(0, description=label, completed=progress, total=total)
        self._draw_again()

    def _draw_again(self) -> bool:
        self._shown.start()
        self._shown.refresh()
        self._is_drawn = True
        return True

    def _erase(self) -> None:
        self._shown.stop()


class _PlainProgress(_Progress):
    """Bar of click; without a total, a line for each report."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def _draw(self, progress: float, total: float | None, label: str) -> None:
        if total is None:
            self.hide()
            click.echo(f"{label or 'done so far'}: {progress:g}", file=self._stream)
            return
        if not self._is_drawn:
            self._bar = click.progressbar(length=_STEPS, file=self._stream, show_eta=False).__enter__()
            self._is_drawn = True
        self._bar.label = label
        step = min(max(round(progress / total * _STEPS), 0), _STEPS)
        self._bar.update(step - self._bar.pos)
        self._bar.render_progress()

    def _erase(self) -> None:
        self._bar.__exit__(None, None, None)


class _Interrupting:
    """Standard stream whose output interrupts the progress."""

    def __init__(self, stream: TextIO, progress: _Progress) -> None:
        self._stream = stream
        self._progress = progress

    def write(self, text: str) -> int:
        """Write a text; nothing is written unchanged, by which click finds out whether a stream is binary."""
        return self._progress.interrupt(text, self._stream) if text else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _display() -> _Progress | None:
    if not sys.stderr.isatty():
        return None
    return _RichProgress() if is_rich(sys.stderr) else _PlainProgress()

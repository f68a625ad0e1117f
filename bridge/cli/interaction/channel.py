"""Channel of the tool of a command: progress on a terminal, questions to the user, and the limit of time."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import click

from bridge.cli.terminal import error_console, is_rich
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

    Args:
        answerer: Answers questions; None refuses them.
    """

    def __init__(self, answerer: QuestionAnswerer | None = None) -> None:
        self.has_listener = answerer is not None
        self.wants_logs = False
        self.peer: object = self
        """Identifies this command as the one client, whose abandoned calls do not prevent further questions."""
        self._answerer = answerer
        self._limit: anyio.CancelScope | None = None
        self._display = _display() if sys.stderr.isatty() else None
        if answerer is not None:
            answerer.before_asking = self.hide

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
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()


class _RichProgress:
    """Bar or spinner of rich, which vanishes at its end."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._has_total = False

    def show(self, progress: float, total: float | None, label: str) -> None:
        from rich.progress import (  # noqa: PLC0415 - an extra
            BarColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        if self._shown is not None and self._has_total != (total is not None):
            self.hide()
        if self._shown is None:
            self._has_total = total is not None
            parts = [BarColumn(), TaskProgressColumn()] if self._has_total else [TextColumn("{task.completed:g}")]
            text = TextColumn("{task.description}", markup=False)
            self._shown = Progress(
                SpinnerColumn(), text, *parts, TimeElapsedColumn(),
                console=error_console(), transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._shown.start()
            self._shown.add_task("", total=None)
        self._shown.update(0, description=label, completed=progress, total=total, refresh=True)

    def hide(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None


class _PlainProgress:
    """Bar of click; without a total, a line for each report."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, progress: float, total: float | None, label: str) -> None:
        if total is None:
            self.hide()
            click.echo(f"{label or 'done so far'}: {progress:g}", err=True)
            return
        if self._bar is None:
            self._bar = click.progressbar(length=_STEPS, file=sys.stderr, show_eta=False).__enter__()
        self._bar.label = label
        step = min(max(round(progress / total * _STEPS), 0), _STEPS)
        self._bar.update(step - self._bar.pos)
        self._bar.render_progress()

    def hide(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None


def _display() -> _RichProgress | _PlainProgress:
    return _RichProgress() if is_rich(sys.stderr) else _PlainProgress()

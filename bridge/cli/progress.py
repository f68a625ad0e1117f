"""Progress: how far a call is, as a bar on the terminal of whoever waits for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Self

import click

from bridge.text import escape_controls
from bridge.tools.context import LocalChannel

if TYPE_CHECKING:
    from types import TracebackType

_STEPS = 1000
_MAX_LABEL_CHARS = 40


class TerminalProgress(LocalChannel):
    """Shows progress on standard error where that is a terminal; log messages go to the log."""

    def __init__(self) -> None:
        self._is_watched = sys.stderr.isatty()
        self._bar: Any = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Move the bar; where nobody knows how much there is, a line says how much is done."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_bar()

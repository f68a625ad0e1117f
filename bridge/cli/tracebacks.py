"""Tracebacks that show a user's own frames, and none of what ran them."""

from __future__ import annotations

import logging
import sysconfig
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import TYPE_CHECKING

import anyio

import bridge

if TYPE_CHECKING:
    from types import TracebackType

_HIDDEN = (
    *(str(Path(package.__file__ or "").resolve().parent) for package in (bridge, anyio)),
    "<frozen importlib",
    "<frozen runpy",
)

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def users_traceback(error: BaseException) -> str:
    """The traceback of an error, of its causes and of its contexts, without the frames between them and the user."""
    described = _pruned(TracebackException.from_exception(error))
    bare = not described.stack and described.__cause__ is None and described.__context__ is None
    return "".join(described.format_exception_only() if bare else described.format())


def where_of(error: BaseException) -> str:
    """The line of the user's where an error arose: ``tools.py, line 3``; empty where there is none.

    An error that a library raised arose where the user's code called it.
    """
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).exists():
        return f"{error.filename}, line {error.lineno}"
    frames = _pruned(TracebackException.from_exception(error)).stack
    own = [frame for frame in frames if not _is_library(frame)] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def _is_library(frame: FrameSummary) -> bool:
    return frame.filename.startswith(("<frozen ", *_LIBRARIES))


def _pruned(described: TracebackException) -> TracebackException:
    described.stack = StackSummary.from_list([frame for frame in described.stack if not _is_hidden(frame)])
    for other in (described.__cause__, described.__context__, *(described.exceptions or ())):
        if other is not None:
            _pruned(other)
    return described


def _is_hidden(frame: FrameSummary) -> bool:
    return frame.filename.startswith(_HIDDEN)


class UsersTracebackFormatter(logging.Formatter):
    """Formats log records with tracebacks of the user's frames only."""

    def formatException(  # noqa: N802 - logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """The traceback without its last newline, as logging wants it."""
        return users_traceback(ei[1]).rstrip("\n") if ei[1] is not None else ""

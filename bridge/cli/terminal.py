"""Terminal output: data, and what may be coloured or drawn.

Nothing is coloured or drawn but on a terminal, as ``NO_COLOR``, ``FORCE_COLOR`` and ``TERM`` say.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TextIO

import click

from bridge.text import escape_controls, escaped_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console


def write_data(text: str) -> None:
    """Write data and a newline to standard output, as UTF-8; on a terminal, control characters are escaped."""
    _write((escape_controls(text) if sys.stdout.isatty() else text).encode("utf-8", "replace") + b"\n")


def write_report(text: str, *, style: Callable[[str], str] | None = None) -> None:
    """Write a report for people and a newline to standard output, as UTF-8.

    Control characters are escaped everywhere, since the texts may be foreign, and a pipe may lead to a terminal. On a
    terminal, lines are broken between words, and continue below the first word, or the last column, of their line.

    Args:
        text: The report.
        style: Returns a line with its colours, where colours are wanted; None for none.
    """
    lines = escape_controls(text).split("\n")
    if is_capable(sys.stdout):
        width = get_terminal_size().columns
        lines = [part for line in lines for part in wrapped(line, width)]
    if style is not None and wants_colour(sys.stdout):
        lines = [style(line) for line in lines]
    _write("\n".join(lines).encode("utf-8", "replace") + b"\n")


def broken_for(stream: TextIO, text: str) -> str:
    """Break the lines of a diagnostic between words if its stream is a terminal.

    Lines that are indented, such as commands to copy, and lines of JSON stay whole.
    """
    if not is_capable(stream):
        return text
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        return text
    lines = text.split("\n")
    return "\n".join(part for line in lines for part in ([line] if line[:1] in _WHOLE else wrapped(line, width)))


_WHOLE = ("", " ", "{")
"""First characters of lines that stay whole."""
_CONTINUED = 4
"""Columns by which the continuation of a line without columns is indented."""


def wrapped(line: str, width: int) -> list[str]:
    """Break a line between words; a word that is longer than the width has a line of its own."""
    if len(line) <= width:
        return [line]
    indent = line.rfind("  ") + 2 if "  " in line else _CONTINUED
    if indent > width * 2 // 3:  # the last column would be too narrow
        indent = _CONTINUED
    return wrap(
        line,
        width,
        subsequent_indent=" " * indent,
        drop_whitespace=True,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


_LEVELS = {"error": "red", "failed": "red", "warning": "yellow", "note": "cyan", "ready": "green"}
"""Colours of levels and states; other states are yellow."""


def coloured(word: str) -> str:
    """Return a level or state in its colour, to be written where `wants_colour`."""
    return click.style(word, fg=_LEVELS.get(word, "yellow"))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align rows of cells in columns."""
    lines = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
    )


def write_content(content: str | bytes) -> None:
    """Write the content of a resource to standard output, unchanged.

    On a terminal, control characters are escaped, and a last line without an end gets one.
    """
    if isinstance(content, str):
        if sys.stdout.isatty():
            content = escape_controls(content) + ("" if content.endswith("\n") else "\n")
        content = content.encode("utf-8", "replace")
    _write(content)


def _write(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_json(data: Any) -> None:
    """Write indented JSON, with null for infinity and NaN; JSON's escapes stand for all control characters."""
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError:  # foreign schemas may contain infinity
        finite = json.loads(json.dumps(data), parse_constant=lambda _: None)
        text = json.dumps(finite, indent=2, ensure_ascii=False)
    _write(escaped_json(text).encode("utf-8", "replace") + b"\n")


def wants_colour(stream: TextIO) -> bool:
    """True if output to a stream is coloured.

    ``NO_COLOR`` prevents it, ``FORCE_COLOR`` other than 0 also colours files and pipes, ``TERM=dumb`` is no terminal
    with colours. Sources: no-color.org, force-color.org.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] != "0"
    return is_capable(stream)


def is_capable(stream: TextIO) -> bool:
    """True if a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in {"dumb", "unknown"}


def is_rich(stream: TextIO) -> bool:
    """True if rich may draw on a stream: it is a capable terminal, and the extra ``cli`` is installed."""
    return is_capable(stream) and is_installed("rich")


def is_installed(package: str) -> bool:
    """True if a package of the extra ``cli`` can be imported."""
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def console_for(stream: TextIO) -> Console:
    """A console of rich for a capable terminal; markup, emoji codes and links in texts have no effect."""
    from rich.console import Console  # noqa: PLC0415 - an extra

    return Console(
        file=stream, force_terminal=True, no_color=not wants_colour(stream), markup=False, emoji=False, highlight=False
    )

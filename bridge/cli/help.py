"""Help texts: lines that end between words at any width, and options in groups with headings."""

from __future__ import annotations

import re
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HYPHEN = "\ue000"
"""Private character in place of hyphens while lines are broken: an option's name is not broken after one."""
_MIN_COLUMNS, _MAX_COLUMNS = 30, 80
_MAX_NAME_CHARS = 30
_PART = re.compile(r"[^| ]*(?:\||[ ]+|$)")
_CONTINUED = 4
"""Columns by which the continuation of a name is indented."""
_NARROW, _NARROW_NAMES = 60, 8
"""Width of a narrow terminal, on which explanations begin below their names, and the columns before them."""


class WordFormatter(click.HelpFormatter):
    """Formatter that breaks lines between words only, and leaves two thirds of a line to the explanations."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:  # click's own least width is that of a wider terminal
            width = max(min(get_terminal_size().columns, max_width or _MAX_COLUMNS) - 2, _MIN_COLUMNS)
        super().__init__(indent_increment, width, max_width)

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = _MAX_NAME_CHARS, col_spacing: int = 2) -> None:
        """Write names and their explanations in two columns."""
        narrow = [(self._broken(name), text.replace("-", _HYPHEN)) for name, text in rows]
        super().write_dl(narrow, min(col_max, self.width // 3 if self.width >= _NARROW else _NARROW_NAMES), col_spacing)

    def _broken(self, name: str) -> str:
        """Break a name that is too long for a line between its words, and after bars."""
        indent, lines = " " * (self.current_indent + _CONTINUED), [""]
        for part in _PART.findall(name):
            if lines[-1].strip() and self.current_indent + len(lines[-1] + part.rstrip()) > self.width:
                lines.append(indent)
            lines[-1] += part
        return "\n".join(line.rstrip() for line in lines)

    def getvalue(self) -> str:
        """Return the text."""
        return super().getvalue().replace(_HYPHEN, "-")


class HelpContext(click.Context):
    """Context of a command whose help is written by `WordFormatter`."""

    formatter_class = WordFormatter


class HeadedOption(click.Option):
    """Option with the heading of its group; None for the first group."""

    def __init__(self, *names: Any, heading: str | None = None, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.heading = heading


class GroupedHelp(click.Command):
    """Command whose help has its options in groups, without their environment variables.

    Args:
        examples: Commands and their purposes, shown before the options.
        settings: Arguments of `click.Command`.
    """

    def __init__(self, *names: Any, examples: Sequence[tuple[str, str]] = (), **settings: Any) -> None:
        super().__init__(*names, **settings)
        self._examples = examples
        for each in self.params:
            if isinstance(each, click.Option):
                each.show_envvar = False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and the groups in the order of their first options."""
        if self._examples:
            with formatter.section("Examples"):
                for command, purpose in self._examples:
                    formatter.write_text(command)
                    with formatter.indentation():
                        formatter.write_text(purpose)
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and (record := each.get_help_record(ctx)) is not None:
                heading = each.heading if isinstance(each, HeadedOption) else None
                groups.setdefault(heading or "Options", []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

"""A Markdown file as data: its blocks of code, the commands of its consoles, its tables, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?: +title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"^<!-- (?P<language>\w+)\n(?P<text>.*?)^-->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_RULE = re.compile(r"\|[-|]+\|")
_PROMPT = "$ "


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block, or a comment that only tests read."""

    language: str
    text: str
    title: str | None
    """Name of the file with this content; None if the block is no file."""
    heading: str
    """The nearest heading above it."""
    line: int
    """Line of its fence."""
    is_comment: bool = False
    """True for an HTML comment, which readers do not see."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line that a reader types, and its output."""

    line: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return self.line


class Document:
    """One Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def prose(self) -> str:
        """Text outside the blocks."""
        return _BLOCK.sub("", self.text)

    @cached_property
    def sentences(self) -> str:
        """Text outside the blocks in one line."""
        return " ".join(self.prose.split())

    @cached_property
    def all_blocks(self) -> list[Block]:
        """Every block and every comment for tests, in order."""
        fences = list(_BLOCK.finditer(self.text))
        comments = [
            each
            for each in _COMMENT.finditer(self.text)
            if not any(fence.start() < each.start() < fence.end() for fence in fences)
        ]
        return [self._block(match) for match in sorted([*fences, *comments], key=lambda match: match.start())]

    def _block(self, match: re.Match[str]) -> Block:
        groups = match.groupdict()
        indent = groups.get("indent") or ""
        headings = _HEADING.findall(_BLOCK.sub("", self.text[: match.start()]))
        return Block(
            language=groups["language"],
            text="".join(line.removeprefix(indent) for line in groups["text"].splitlines(keepends=True)),
            title=groups.get("title"),
            heading=headings[-1] if headings else "",
            line=self.text.count("\n", 0, match.start()) + 1,
            is_comment=match.re is _COMMENT,
        )

    def blocks(self, language: str) -> list[Block]:
        """The blocks of a language, in order."""
        return [block for block in self.all_blocks if block.language == language and not block.is_comment]

    def commands(self) -> list[Command]:
        """Every line that a reader is asked to type, in order."""
        return [command for console in self.blocks("console") for command in commands_of(console)]

    def table(self, first_header: str) -> list[list[str]]:
        """The rows of the table whose first column has this header, without the header."""
        return self._table(first_header)[1:]

    def header_of(self, first_header: str) -> list[str]:
        """The header of the table whose first column has this one."""
        return self._table(first_header)[0]

    def _table(self, first_header: str) -> list[list[str]]:
        lines = self.text.splitlines()
        (start,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first_header} |")]
        assert _RULE.fullmatch(lines[start + 1])
        rows = takewhile(lambda line: line.startswith("|"), [lines[start], *lines[start + 2 :]])
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]

    def links(self) -> list[str]:
        """The targets of its links."""
        return _LINK.findall(self.prose)

    def anchors(self) -> set[str]:
        """The anchors of its headings, as Python-Markdown's `toc` makes them."""
        made: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"[`*]|\[([^\]]+)\]\([^)]+\)", r"\1", heading)
            slug = re.sub(r"[^\w\s-]", "", plain).strip().lower()
            slug = unique = re.sub(r"[\s-]+", "-", slug)
            number = 0
            while unique in made:
                number += 1
                unique = f"{slug}_{number}"
            made.add(unique)
        return made


def commands_of(console: Block) -> list[Command]:
    """The commands of a console, each with the lines that follow it."""
    found: list[Command] = []
    for session in re.split(rf"^{re.escape(_PROMPT)}", console.text, flags=re.MULTILINE)[1:]:
        line, *shown = session.splitlines()
        while line.endswith("\\"):
            line = f"{line[:-1].rstrip()} {shown.pop(0).strip()}"
        found.append(Command(line=line, shown=tuple(shown)))
    return found


def codes(text: str) -> list[str]:
    """The texts in backquotes."""
    return _CODE.findall(text)

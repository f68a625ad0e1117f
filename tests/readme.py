"""The README as data: its blocks of code, the commands of its consoles, its tables and its links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = _BLOCK.sub("", TEXT)
"""What stands outside the blocks."""
SENTENCES = " ".join(PROSE.split())
"""The same in one line."""

_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_RULE = re.compile(r"\|[-|]+\|")
_PROMPT = "$ "


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block."""

    language: str
    text: str
    heading: str
    """The nearest heading above it."""
    line: int
    """Where its fence stands."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A line that a reader types, and what the README shows of the answer."""

    line: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return self.line


def blocks(language: str) -> list[Block]:
    """The blocks of a language, in order."""
    return [
        Block(
            language=language,
            text=match["text"],
            heading=_HEADING.findall(TEXT[: match.start()])[-1],
            line=TEXT.count("\n", 0, match.start()) + 1,
        )
        for match in _BLOCK.finditer(TEXT)
        if match["language"] == language
    ]


def block(fragment: str) -> str:
    """The one Python block that contains a text."""
    (found,) = [each.text for each in blocks("python") if fragment in each.text]
    return found


def commands() -> list[Command]:
    """All that a reader is told to type, in order."""
    found: list[Command] = []
    for console in blocks("console"):
        for session in re.split(rf"^{re.escape(_PROMPT)}", console.text, flags=re.MULTILINE)[1:]:
            line, *shown = session.splitlines()
            found.append(Command(line=line, shown=tuple(shown)))
    return found


def table(first_header: str) -> list[list[str]]:
    """The rows of the table whose first column has this header, without the header."""
    lines = TEXT.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first_header} |")]
    assert _RULE.fullmatch(lines[start + 1])
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def codes(text: str) -> list[str]:
    """What stands in backquotes in a text."""
    return _CODE.findall(text)


def links() -> list[str]:
    """Where the README points to."""
    return _LINK.findall(TEXT)

"""Markdown of a model on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from bridge.cli.chat import markdown
from bridge.cli.chat.markdown import MarkdownWriter

_CURSOR = re.compile(r"\r?\x1b\[[\d;?]*[A-Zhl]")
_STYLES = re.compile(r"\x1b\[[\d;]*m")


def rendered(*pieces: str, width: int = 60) -> str:
    """Return the output for a terminal, with control sequences."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, markup=False, emoji=False, highlight=False)
    writer = MarkdownWriter(console)
    for piece in pieces:
        writer.write(piece)
    writer.end()
    return stream.getvalue()


def read(*pieces: str) -> str:
    """Return the output without control sequences, with the last drawing of each block."""
    return _STYLES.sub("", _CURSOR.sub("", rendered(*pieces)))


def test_markdown_is_rendered() -> None:
    written = rendered("# Title\n\nSome **bold** text.\n\n* one\n* two\n\n```python\nx = 1\n```\n")
    assert "\x1b[1mbold" in written
    text = read("# Title\n\nSome **bold** text.\n\n* one\n* two\n\n```python\nx = 1\n```\n")
    for shown in ("Title", "Some bold text.", "• one", "x = 1"):
        assert shown in text
    assert "**" not in text
    assert "```" not in text


def test_blocks_stay_once_they_are_finished() -> None:
    pieces = [*"First **one**.\n\n```\na\n\nb\n```\n\nLast."]
    lines = [line.strip() for line in read(*pieces).splitlines() if line.strip()]
    for shown in ("First one.", "a", "b", "Last."):
        assert shown in lines
    assert lines[-1] == "Last."


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x1b]0;owned\x07",
        "&#27;[2J&#x1b;]0;owned&#7;",
        "`\x9b2J`",
        "```\n\x1b[2J\n```",
        "[here](https://a.example/&#27;[2J)",
        "| a | b |\n|---|---|\n| &#27;[2J | x |",
        "a &#x202e;txt.exe",
    ],
)
def test_no_control_character_of_the_text_reaches_the_terminal(text: str) -> None:
    left = read(text)
    assert all(char in "\n " or char.isprintable() for char in left), left
    assert "\x1b]" not in rendered(text)


def test_the_target_of_a_link_is_shown_and_nothing_is_hidden() -> None:
    source = "[your bank](https://evil.example) ![a](https://track.example/x.png) <b>x</b>\n\n<!-- hidden -->\n"
    assert "\x1b]8;" not in rendered(source)
    text = read(source)
    for shown in ("https://evil.example", "https://track.example/x.png", "<b>x</b>", "<!-- hidden -->"):
        assert shown in text


def test_a_block_that_never_ends_is_written_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_MAX_BLOCK_CHARS", 100)
    text = read("```\n", *["x\x1b[2J\n"] * 60, "**end**")
    assert text.count("x\\x1b[2J") >= 60
    assert text.rstrip().endswith("**end**")

"""Markdown that a model streams, rendered block by block on a terminal.

The block that is being written is drawn again as it grows; a finished one stays. The text is foreign: control
characters are escaped after rendering, too, since ``&#x202e;`` is one in Markdown. Addresses of links are shown, and
HTML is shown as it is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment

from bridge.text import escape_controls

if TYPE_CHECKING:
    from markdown_it.token import Token
    from rich.console import Console, ConsoleOptions, RenderResult

_MAX_BLOCK_CHARS = 20_000
"""Length above which a block, and all that follows in its answer, is written without rendering."""
_REFRESHES_PER_SECOND = 8
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownWriter:
    """Renders one answer after another on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._block = ""
        self._has_written = False
        self._is_plain = False
        self._live: Live | None = None

    def write(self, text: str) -> None:
        """Add a piece of the answer."""
        self._block += text
        if self._is_plain:
            self._finish(self._block)
            self._block = ""
            return
        if (length := _finished_chars(self._block)) > 0:
            self._finish(self._block[:length])
            self._block = self._block[length:]
        if len(self._block) > _MAX_BLOCK_CHARS:
            self._is_plain = True
            self.write("")
        elif self._block.strip():
            self._draw()

    def pause(self) -> None:
        """Finish the current block, before something else is written."""
        if self._block.strip():
            self._finish(self._block)
        self._block = ""

    def end(self) -> None:
        """End the answer."""
        self.pause()
        if self._is_plain:
            self._console.out()
        self._has_written = self._is_plain = False

    def _draw(self) -> None:
        if self._live is None:
            if self._has_written:
                self._console.out()
            self._live = Live(
                console=self._console,
                refresh_per_second=_REFRESHES_PER_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(HostileMarkdown(self._block))

    def _finish(self, block: str) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif self._has_written and not self._is_plain:
            self._console.out()
        self._has_written = True
        if self._is_plain:
            self._console.out(escape_controls(block), end="", highlight=False)
        else:
            self._console.print(HostileMarkdown(block))


class HostileMarkdown:
    """Markdown by a stranger, as something that rich prints."""

    def __init__(self, text: str) -> None:
        self._markdown = Markdown(escape_controls(text), hyperlinks=False, code_theme="ansi_dark")
        _show_all(self._markdown.parsed)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render, with control characters of the text escaped and without hidden links."""
        for text, style, control in console.render(self._markdown, options):
            if control:
                continue
            yield Segment(
                "\n".join(map(escape_controls, text.split("\n"))), style.update_link(None) if style else style
            )


def _show_all(tokens: list[Token]) -> None:
    """Turn HTML and images, which rich would leave out, into text."""
    for token in tokens:
        if token.type == "html_block":
            token.type = "code_block"
        elif token.type == "html_inline":
            token.type = "text"
        elif token.type == "image":
            token.content = f"![{token.content}]({token.attrs.get('src', '')})"
            token.type, token.children = "text", None
        _show_all(token.children or [])


def _finished_chars(text: str) -> int:
    """Length of the blocks before the last one; a block ends at an empty line outside of code and lists' items."""
    finished, position, fence, was_empty = 0, 0, "", False
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if not fence and was_empty and not line[0].isspace():
            finished = position
        if match is not None and not fence:
            fence = match[1]
        elif match is not None and match[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        was_empty = not line.strip()
        position += len(line)
    return finished

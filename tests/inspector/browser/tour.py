"""Animated picture of the README: a decorated function, ``bridge inspect``, and a call in its page."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import expect
from pygments import highlight  # type: ignore[import-untyped]  # it has no types
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]  # likewise
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]  # likewise

from tests.inspector.browser.conftest import choose, inspected, signed_in
from tests.markdown import ROOT, Document

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURE = ROOT / "docs" / "tour.gif"
WIDTH, HEIGHT = 880, 460
SHORT_MS, LONG_MS = 450, 2400
"""Milliseconds that a picture of the animation is shown."""
COLOURS = 96
STYLE = """
body { margin: 0; background: #263238; font: 17px/1.55 "DejaVu Sans Mono", monospace; }
.window { margin: 34px 40px; background: #ffffff; border-radius: 10px; overflow: hidden; }
.title { background: #eceff1; color: #546e7a; padding: 7px 16px; font: 14px "DejaVu Sans", sans-serif; }
pre { margin: 0; padding: 16px 20px; }
.terminal { background: #111719; color: #cfd8dc; } .terminal .title { background: #1d272b; color: #90a4ae; }
"""


class Tour:
    """Pictures of one page, and the milliseconds that each is shown."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.images: list[Image.Image] = []
        self.times: list[int] = []

    def show(self, milliseconds: int) -> None:
        """Add the page as it is."""
        taken = self.page.screenshot(animations="disabled", caret="hide")
        self.images.append(Image.open(io.BytesIO(taken)).convert("RGB"))
        self.times.append(milliseconds)

    def editor(self, code: str, command: str = "") -> None:
        """Show a file, and a terminal below it once a command is typed."""
        window = f'<div class="window"><div class="title">tools.py</div>{code}</div>'
        if command:
            window += (
                f'<div class="window terminal"><div class="title">terminal</div><pre>{escape(command)}</pre></div>'
            )
        colours = HtmlFormatter().get_style_defs(".highlight")
        self.page.set_content(f"<style>{colours}{STYLE}</style>{window}")

    def save(self, path: Path) -> None:
        """Write the animation, in the colours of its first and its last picture."""
        sheet = Image.new("RGB", (WIDTH, HEIGHT * 2))
        sheet.paste(self.images[0], (0, 0))
        sheet.paste(self.images[-1], (0, HEIGHT))
        palette = sheet.quantize(COLOURS)
        first, *others = (each.quantize(palette=palette, dither=Image.Dither.NONE) for each in self.images)
        first.save(path, save_all=True, append_images=others, duration=self.times, loop=0, optimize=True)


def code_of_readme() -> str:
    """Return the first file of the README."""
    return next(block.text for block in Document(ROOT / "README.md").blocks("python") if block.title == "tools.py")


def take_tour(browser: Browser, path: Path = PICTURE) -> None:
    """Write the animated picture."""
    source = code_of_readme()
    lines = source.strip().splitlines()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tools.py"
        file.write_text(source, encoding="utf-8")
        with inspected(str(file)) as url:
            context = signed_in(browser, url, viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce")
            tour = Tour(context.new_page())
            for end in (1, 4, 5, len(lines)):
                tour.editor(highlight("\n".join(lines[:end]), PythonLexer(), HtmlFormatter()))
                tour.show(SHORT_MS if end < len(lines) else LONG_MS)
            code = highlight(source.strip(), PythonLexer(), HtmlFormatter())
            for command in ("$ bridge", "$ bridge inspect", "$ bridge inspect tools.py"):
                tour.editor(code, command)
                tour.show(SHORT_MS)
            tour.show(SHORT_MS)
            page = tour.page
            page.goto(url.partition("?")[0])
            expect(page.locator(".item-link").first).to_be_visible()
            choose(page, "add")
            tour.show(LONG_MS)
            for name, value in (("a", "1"), ("b", "2")):
                page.get_by_label(name, exact=True).fill(value)
                tour.show(SHORT_MS)
            page.get_by_role("button", name="Call", exact=True).click()
            outcome = page.get_by_role("region", name="Outcome")
            expect(outcome).to_contain_text("3")
            page.evaluate("""() => { for (const figures of document.querySelectorAll(".figures"))
                figures.textContent = figures.textContent.replace(/[0-9.]+ m?s\\b/, "1 ms"); scrollTo(0, 1e6); }""")
            tour.show(2 * LONG_MS)
            context.close()
    tour.save(path)

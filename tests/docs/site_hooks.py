"""Hooks of MkDocs: the changelog as a page, files for language models, consoles that copy commands, and the search.

MkDocs calls these functions by their names; see its page on hooks.
"""

from __future__ import annotations

import re
import tomllib
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
REFERENCE = "reference/"
_REFERENCE_BOOST = 0.0005
"""Weight of a page of the reference in the search; that of a guide is 1, and of a match in a title 1,000."""
_CONSOLE = re.compile(r'<div class="highlight">((?:(?!</div>).)*?<span class="gp">.*?)</div>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_PROMPT = "$ "
_pages: dict[str, str] = {}
"""Markdown by source path."""
_order: list[str] = []
"""Source paths in the order of the navigation."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version that the pages describe, and the page of all versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    config.extra["documented_version"] = project["project"]["version"]
    config.extra["releases"] = f"{project['tool']['release']['repository']}/tags"
    config.site_url = f"{(config.site_url or '').rstrip('/')}/"  # that of a version has no slash at its end
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, whose links lead to the repository."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests of the hooks do without the documentation's packages

    _pages.clear()
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "changelog.md", content=re.sub(r"\]\(docs/", "](", text)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Keep the text for language models, and rank the reference below the guides."""
    source = page.file.src_uri
    if source.startswith(REFERENCE):
        page.meta.setdefault("search", {})["boost"] = _REFERENCE_BOOST
        page.edit_url = None
    elif source == "changelog.md":
        page.edit_url = None
    _pages[source] = markdown
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Let the button of a console copy its commands alone."""
    return _CONSOLE.sub(_with_commands, html)


def _with_commands(match: re.Match[str]) -> str:
    commands = escape("\n".join(commands_in(unescape(_TAG.sub("", match[1])))), quote=True)
    return f'<div class="highlight" data-copy="{commands}">{match[1]}</div>'


def commands_in(console: str) -> list[str]:
    """The lines of the commands in a console, without prompts and output."""
    found: list[str] = []
    for line in console.splitlines():
        if line.startswith(_PROMPT):
            found.append(line.removeprefix(_PROMPT))
        elif found and found[-1].endswith("\\"):
            found.append(line)
    return found


def on_nav(nav: Navigation, **_: Any) -> Navigation:
    """Keep the order of the pages."""
    _order[:] = [page.file.src_uri for page in nav.pages]
    return nav


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Write the home as a folder into the map: with it, the switcher finds a page in another version."""
    if template_name != "sitemap.xml":
        return output_content
    return output_content.replace(f"<loc>{config.site_url}index.html</loc>", f"<loc>{config.site_url}</loc>")


def on_post_build(config: MkDocsConfig) -> None:
    """Write ``llms.txt``, ``llms-full.txt``, all guides as Markdown (llmstxt.org), and the index as a script."""
    site = Path(config.site_dir)
    base = (config.site_url or "").rstrip("/")
    index = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Guides", ""]
    reference = ["", "## Reference", ""]
    full: list[str] = []
    for source in (each for each in _order if each in _pages):
        title = re.search(r"^# (.+)$", _pages[source], re.MULTILINE)
        line = f"- [{title[1] if title else source}]({base}/{source.removesuffix('.md')}.html)"
        (reference if source.startswith(REFERENCE) else index).append(line)
        if not source.startswith((REFERENCE, "changelog")):
            full.append(_pages[source])
    script = f"var __index = {(site / 'search' / 'search_index.json').read_text(encoding='utf-8')}"
    (site / "search" / "search_index.js").write_text(script, encoding="utf-8")  # pages in files cannot fetch the other
    (site / "llms.txt").write_text("\n".join([*index, *reference, ""]), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")


on_post_build.mkdocs_priority = -100  # type: ignore[attr-defined]  # after the search has written its index

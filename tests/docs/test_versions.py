"""Two versions of the documentation on one site, as `make docs-release` writes them, and the switcher between them."""

from __future__ import annotations

import json
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.test_site import URL
from tests.docs.versions import AT_ROOT, BRANCH, publish
from tests.markdown import ROOT
from tests.release import VERSION, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.docs
OLD, NEW = "0.0.9", VERSION


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The branch of the site after an older version and this one were published."""
    folder = tmp_path_factory.mktemp("versions")
    checkout, site = folder / "checkout", folder / "served" / "bridge"
    (checkout / "tests" / "docs").mkdir(parents=True)
    for name in ("docs", "bridge", "CHANGELOG.md"):
        (checkout / name).symlink_to(ROOT / name)
    for name in ("mkdocs.yml", "pyproject.toml", "tests/docs/site_hooks.py"):
        shutil.copy(ROOT / name, checkout / name)
    for command in (
        ("init", "--quiet"),
        ("config", "user.name", "Ada"),
        ("config", "user.email", "ada@example.com"),
        ("commit", "--quiet", "--allow-empty", "--message", "First"),
    ):
        run("git", *command, cwd=checkout)
    project = checkout / "pyproject.toml"
    this = project.read_text(encoding="utf-8")
    project.write_text(this.replace(f'version = "{NEW}"', f'version = "{OLD}"', 1), encoding="utf-8")
    publish(checkout, OLD)
    project.write_text(this, encoding="utf-8")
    publish(checkout, NEW)
    run("git", "clone", "--quiet", "--branch", BRANCH, checkout, site)
    return site


@pytest.fixture(scope="module")
def origin(site: Path) -> Iterator[str]:
    """The origin of a server of the site."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.parent))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def test_each_version_has_a_folder_and_the_latest_one_is_what_links_lead_to(site: Path) -> None:
    listed = json.loads((site / "versions.json").read_text("utf-8"))
    assert [(each["version"], each["title"], each["aliases"]) for each in listed] == [
        (minor(NEW), NEW, ["latest"]),
        (minor(OLD), OLD, []),
    ]
    for folder, version in ((minor(OLD), OLD), (minor(NEW), NEW), ("latest", NEW)):
        page = (site / folder / "quickstart.html").read_text("utf-8")
        assert f"Version {version}" in page
        assert f'<link rel="canonical" href="{URL}latest/quickstart.html">' in page
        assert f'property="og:image" content="{URL}latest/card.png"' in page
    assert "latest/" in (site / "index.html").read_text("utf-8")


def test_files_of_the_root_are_those_of_the_latest_version(site: Path) -> None:
    for name in AT_ROOT:
        assert (site / name).read_bytes() == (site / "latest" / name).read_bytes()
    assert f"({URL}latest/quickstart.html)" in (site / "llms.txt").read_text("utf-8")
    assert '"/bridge/latest/quickstart.html"' in (site / "404.html").read_text("utf-8")


@pytest.mark.skipif(find_spec("playwright") is None, reason="`make test-browser` installs what drives a browser")
def test_the_switcher_lists_both_versions_and_stays_on_the_page(origin: str) -> None:
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 - of the group browser

    from tests.browsers import launched  # noqa: PLC0415 - likewise

    requested: list[str] = []
    with sync_playwright() as playwright, launched(playwright) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{origin}/bridge/{minor(OLD)}/quickstart.html")
        links = page.locator(".md-version__link")
        expect(links).to_have_text([NEW, OLD])
        banner = page.locator("[data-md-component=outdated]")
        expect(banner).to_be_visible()
        page.locator(".md-version").hover(force=True)  # the list opens over the button
        links.first.click()
        page.wait_for_url(f"{origin}/bridge/{minor(NEW)}/quickstart.html")
        expect(page.locator(".md-version__current")).to_have_text(NEW)
        expect(banner).to_be_hidden()
        page.goto(f"{origin}/bridge/")
        page.wait_for_url(f"{origin}/bridge/latest/**")
        page.close()
    assert [url for url in requested if not url.startswith(origin)] == []

"""Accessibility of pages, by the rules of axe-core, which npm fetches."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

AXE = "axe-core@4"
RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(" | ")}`)"""


def axe_source(folder: Path) -> str:
    """Fetch axe-core into a folder, and return its source; skip the test if that is impossible."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "pack", "--silent", AXE]
    packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if packed.returncode:
        pytest.skip(f"npm cannot fetch {AXE}: {packed.stderr}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


class Checked:
    """A page that axe-core checks."""

    def __init__(self, page: Page, axe: str) -> None:
        self.page = page
        self.axe = axe
        self.found: dict[str, Any] = {}

    def check(self, view: str) -> None:
        """Note the violations of the present view."""
        self.page.evaluate(f"{self.axe};0")
        if violations := self.page.evaluate(RUN):
            self.found[view] = violations

"""The README's comparison with other Python libraries, by using these libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.interop.packages import compared_python
from tests.markdown import ROOT, Document

FACTS = Path(__file__).with_name("comparison_facts.py")
LIBRARIES = ("FastMCP", "official SDK", "pydantic-ai")
DEADLINE_SECONDS = 300
README = Document(ROOT / "README.md")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("comparison")]


@pytest.fixture(scope="module")
def facts() -> dict[str, dict[str, str]]:
    """The cells of the libraries' columns, by library and row."""
    bridge = json.dumps([sys.executable, "-m", "bridge"])
    done = subprocess.run(
        [compared_python(), str(FACTS), bridge],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_cell_is_a_fact_of_the_installed_library(facts: dict[str, dict[str, str]], library: str) -> None:
    header = README.header_of("compared")
    column = [library in title for title in header].index(True)
    shown = {row[0]: row[column] for row in README.table("compared") if row[0] != "language"}
    found = dict(facts[library])
    major_and_minor = ".".join(found.pop("version").split(".")[:2])
    assert header[column].removesuffix(", `MCPServer`") == f"{library} {major_and_minor}"
    assert shown == found

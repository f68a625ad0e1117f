"""Doctor beside PyPI's ``cisco-ai-mcp-scanner``, whose YARA rules need no network, on the same servers."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.faulty_server import FAULTS, STATEMENTS
from tests.interop.packages import python_with

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = "4.8.7"
DEADLINE_SECONDS = 120
ROOT = Path(__file__).parents[2]
FAULTY = f"{Path(__file__).with_name('faulty_server.py')}:TOOLS"
READY = sorted(str(path) for path in (ROOT / "servers").glob("*.py"))


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], set[str]]:
    """Names of the tools of a server that the scanner reports."""
    program = Path(python_with("cisco-ai-mcp-scanner", VERSION)).with_name("mcp-scanner")

    def scanned(target: str) -> set[str]:
        listed = tmp_path_factory.mktemp("scanned") / "tools.json"
        listed.write_text(bridge("list", target, "--json"))
        answer = run(str(program), "--analyzers", "yara", "--raw", "static", "--tools", str(listed))
        return {each["tool_name"] for each in json.loads(answer[answer.index("[\n") :]) if not each["is_safe"]}

    return scanned


def run(*words: str) -> str:
    """Output of a program, also if it has findings."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS, cwd=ROOT, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def bridge(*words: str) -> str:
    """Output of ``bridge``."""
    return run(sys.executable, "-m", "bridge", *words)


def examined(target: str) -> set[str]:
    """Names of the tools of a server that doctor reports, without notes."""
    findings = json.loads(bridge("doctor", target, "--json"))["findings"]
    return {each["name"] for each in findings if each["level"] != "note"}


def test_doctor_finds_what_the_scanner_finds_and_leaves_statements_alone(scanned: Callable[[str], set[str]]) -> None:
    found, by_scanner = examined(FAULTY), scanned(FAULTY)
    assert by_scanner == FAULTS.keys() | STATEMENTS.keys()  # else the comparison says nothing
    assert found == FAULTS.keys()


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return the arguments of the ready servers."""
    sqlite3.connect(tmp_path / "notes.sqlite").close()
    monkeypatch.setenv("FILES_ROOT", str(tmp_path))
    monkeypatch.setenv("DATABASE_FILE", str(tmp_path / "notes.sqlite"))


@pytest.mark.parametrize("server", READY, ids=lambda path: Path(path).stem)
def test_ready_servers_have_no_findings(server: str, scanned: Callable[[str], set[str]]) -> None:
    assert examined(server) == set()
    assert scanned(server) == set()


def test_the_documentation_has_the_numbers_of_the_comparison() -> None:
    page = (ROOT / "docs/command-line/doctor.md").read_text(encoding="utf-8")
    assert VERSION in page
    assert f"| {len(FAULTS)} with faults: " in page
    assert f"dangerous commands | {len(FAULTS)} | {len(FAULTS)} |" in page
    assert f"resemble faults | {len(STATEMENTS)} | 0 |" in page

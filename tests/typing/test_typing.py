"""Type checkers accept a program of each use, and report the mistakes in another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.markdown import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 400
PROGRAMS = sorted(Path(__file__).parent.glob("[!t]*.py"))
MISTAKES = """\
import bridge
from bridge import Decision
from bridge.tools import Nothing
from starlette.applications import Starlette

def add(a: int) -> int:
    return a

bridge.nothing
bridge.http_app(add, name="sums")
bridge.mount(Starlette(), "/sums", add, path="/mcp")
bridge.run(add, instructions="Sums.")
bridge.Server(add, name="sums").http_app(max_sessions="many")
bridge.Server(add, name="sums", page_size="many")
bridge.Server(add)
bridge.connect("mcp.json", prefx="never")
"""
LINES_WITH_MISTAKES = [2, 3, *range(9, len(MISTAKES.splitlines()) + 1)]


def by_mypy(programs: Sequence[Path], folder: Path) -> list[int]:
    """Return the lines with errors; the cache of the project, if any, is used."""
    command = ["mypy", "--strict", "--no-error-summary", "--config-file", "", "--no-pretty", "--follow-imports=silent"]
    return lines([sys.executable, "-m", *command, *map(str, programs)], r"^\S+:(\d+): error")


def by_pyright(programs: Sequence[Path], folder: Path) -> list[int]:
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"include": [str(each) for each in programs], "typeCheckingMode": "strict"}))
    command = ["basedpyright", "--pythonpath", sys.executable, "--project", str(config)]
    return lines([sys.executable, "-m", *command], r":(\d+):\d+ - error")


def lines(command: list[str], pattern: str) -> list[int]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    found = sorted({int(line) for line in re.findall(pattern, done.stdout, re.MULTILINE)})
    assert (done.returncode, bool(found)) in {(0, False), (1, True)}, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_type_checkers_accept_a_program_of_each_use(
    check: Callable[[Sequence[Path], Path], list[int]], tmp_path: Path
) -> None:
    assert [each.stem for each in PROGRAMS] == ["applying", "asking", "importing", "serving"]
    assert check(PROGRAMS, tmp_path) == []


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_type_checkers_report_names_and_options_that_do_not_exist(
    check: Callable[[Sequence[Path], Path], list[int]], tmp_path: Path
) -> None:
    # mypy does not repeat all errors of a module that is in its cache: each run has another module.
    program = tmp_path / f"mistakes_{uuid4().hex}.py"
    program.write_text(MISTAKES)
    assert check([program], tmp_path) == LINES_WITH_MISTAKES

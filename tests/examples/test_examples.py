"""Every example runs, shows something, and keeps the promises that it asserts itself; and it can be served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_SECONDS = 90


def run(*arguments: str, working_directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=working_directory,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_from_anywhere_and_shows_something(name: str, tmp_path: Path) -> None:
    assert len(run(str(EXAMPLES / name), working_directory=tmp_path).splitlines()) >= 2


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("serve_functions.py", ["population", "cities"]),
        ("tool_class.py", ["order", "count"]),
        ("interactive.py", ["clean", "paint", "guard", "relieve"]),
        ("mounted.py", ["count_visits"]),
        ("by_hand.py", ["get_booking_details"]),
        ("published_service.py", ["translate"]),
    ],
)
def test_an_example_is_a_target_of_the_command(name: str, offered: list[str], tmp_path: Path) -> None:
    listed = json.loads(run("-m", "bridge", "list", str(EXAMPLES / name), "--json", working_directory=tmp_path))
    assert [tool["name"] for tool in listed] == offered

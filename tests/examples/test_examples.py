"""Every example runs, shows something, and keeps the promises that it asserts itself; and it can be served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from tests.models.openai_wire import completion
from tests.models.provider import running_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_SECONDS = 90


def run(*arguments: str, working_directory: Path, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=working_directory,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"} | dict(environment),
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


def test_an_example_runs_with_a_model_that_is_named(tmp_path: Path) -> None:
    wanted = {"name": "square_root", "arguments": '{"x": 475695037565}'}
    with running_provider() as provider:
        provider.will_answer(
            completion({"tool_calls": [{"id": "call_1", "type": "function", "function": wanted}]}, "tool_calls"),
            completion({"content": "It is 689,706.4865."}),
        )
        shown = run(
            str(EXAMPLES / "square_root.py"),
            "--model",
            "some-model",
            working_directory=tmp_path,
            environment={"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "secret"},
        )
    assert shown.splitlines()[-1] == "It is 689,706.4865."
    assert [request.body["model"] for request in provider.requests] == ["some-model", "some-model"]
    assert provider.requests[1].body["messages"][-1]["content"] == "689706.4865324959"

"""Every example runs, prints something, and passes its own assertions; and it can be served."""

from __future__ import annotations

import json
import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from tests import forks
from tests.examples.played import playing
from tests.models.provider import running_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge import ChatRequest
    from bridge.models.scripted import Reply, Script

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE_SECONDS = 90


def run(*arguments: str, working_directory: Path, environment: Mapping[str, str] = MappingProxyType({})) -> str:
    done = forks.run(arguments, cwd=working_directory, env=os.environ | dict(environment), timeout=DEADLINE_SECONDS)
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
    listed = json.loads(run("-m", "bridge", "list", str(EXAMPLES / name), "--json", working_directory=tmp_path))[
        "tools"
    ]
    assert [tool["name"] for tool in listed] == offered


def script_of(name: str) -> Script:
    """Replies of the model, by example."""
    specification = spec_from_file_location(f"played_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    if name != "experts":
        script: Script = module.script
        return script

    def experts(request: ChatRequest) -> Reply:
        if request.tool_specifications:
            reply: Reply = module.router_script(request)
            return reply
        return "See one who knows."

    return experts


ONLINE = [
    "booking",
    "error_recovery",
    "experts",
    "guarded_service",
    "imported_tools",
    "parallel_tools",
    "published_service",
    "square_root",
    "streaming",
    "weather",
]


def test_every_example_that_asks_a_model_is_tried_with_one() -> None:
    assert [path.stem for path in sorted(EXAMPLES.glob("*.py")) if "OpenAiChatModel(" in path.read_text()] == ONLINE


@pytest.mark.parametrize("name", ONLINE)
def test_an_example_runs_with_a_model_that_is_named(name: str, tmp_path: Path) -> None:
    named = [] if name == "published_service" else ["--model", "some-model"]
    with running_provider() as provider:
        provider.answer_to = playing(script_of(name))
        shown = run(
            str(EXAMPLES / f"{name}.py"),
            *named,
            working_directory=tmp_path,
            environment={
                "OPENAI_BASE_URL": f"{provider.url}/v1",
                "OPENAI_API_KEY": "secret",
                "MODEL": "some-model",
            },
        )
    assert len(shown.splitlines()) >= 2
    assert {request.body["model"] for request in provider.requests} == {"some-model"}

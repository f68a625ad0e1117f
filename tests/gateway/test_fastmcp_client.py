"""FastMCP's client in its own process, with a gateway, over every transport and with both eras."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import entry, write_config
from tests.interop.counterpart import MODERN, Route, serving
from tests.interop.packages import fastmcp_python
from tests.interop.tools import TOOLS
from tests.processes import ROOT

CLIENT = str(Path(__file__).parents[1] / "interop" / "fastmcp_client.py")
DEADLINE_SECONDS = 120

CALLERS = [Route(transport, mode) for transport in ("stdio", "http") for mode in (MODERN, "legacy")]
CALLERS += [Route("http", "auto"), Route("sse", "legacy")]


@pytest.fixture(scope="module", params=[MODERN, "legacy"], ids=lambda era: f"from-{era}")
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A configuration with a server of each era."""
    return write_config(tmp_path_factory.mktemp("config") / "mcp.json", served=entry(Route("stdio", request.param), ""))


@pytest.fixture(scope="module", params=CALLERS, ids=lambda route: f"to-{route}")
def seen(request: pytest.FixtureRequest, config: str) -> dict[str, Any]:
    """Results that the client printed."""
    python, route = fastmcp_python(), request.param
    with ExitStack() as stack:
        if route.transport == "stdio":
            server = json.dumps([sys.executable, "-m", "bridge", "serve", config])
        else:
            origin = stack.enter_context(serving(target=config))
            server = f"{origin}/{'sse' if route.transport == 'sse' else 'mcp'}"
        done = subprocess.run(
            [python, CLIENT, server, route.mode],
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_tools_are_listed_and_called(seen: dict[str, Any]) -> None:
    assert seen["names"] == [tool.name for tool in TOOLS]
    assert seen["added"] == [5, {"result": 5}, "5"]
    assert seen["mirrored"] == [-1.5, 2.0]
    assert seen["metadata"] == 3
    assert seen["kinds"] == ["text", "image", "audio", "resource", "resource", "resource_link"]


def test_what_fails_is_an_error_with_its_words(seen: dict[str, Any]) -> None:
    assert seen["failed"] == [True, "no bananas today; ask for apples"]
    assert seen["refused"] == "invalid arguments for 'add': a: should be a valid integer, got \"x\""


def test_progress_comes_in_order(seen: dict[str, Any]) -> None:
    assert seen["steps"] == [None, "done", [[1, 3, "one"], [2, 3, None], [3, None, None]]]


def test_questions_are_asked_and_answered(seen: dict[str, Any]) -> None:
    assert seen["ordered"] == {"action": "accept", "content": {"dish": "soup", "portions": 2}}
    assert seen["thought"].endswith(": 42")
    assert seen["folders"] == ["file:///home/ada"]
    assert seen["interviewed"] == {"first": "accept", "rest": ["model", "roots"]}
    assert seen["asked"] == [
        "What would you like?",
        "why 50 Be brief.",
        "What would you like?",
        "Is that wise? 10 None",
    ]

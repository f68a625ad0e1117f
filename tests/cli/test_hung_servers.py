"""Short commands beside a server that never answers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.cli.targets import servers as of_targets
from bridge.cli.targets.servers import call_tool, provided_tools
from bridge.client import ServerConfig, StdioTransport
from bridge.errors import UnknownToolError
from tests.client.scripted import listed, scripted_config

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.tools.specification import ToolSpecification
    from tests.cli.conftest import Run

DEADLINE_SECONDS = 30
NEVER_SECONDS = 20.0
FEATURES = """
from bridge import prompt, resource

@resource("calc://pi")
def pi() -> str:
    return "here"

@prompt
def greeting() -> str:
    return "here"
"""
RESULT = {"content": [{"type": "text", "text": "5"}]}


def servers(**settings: Any) -> list[ServerConfig]:
    """One server that answers, and one that does not."""
    asleep = StdioTransport(sys.executable, args=("-c", "import sys; sys.stdin.read()"))
    return [
        ServerConfig(name="asleep", transport=asleep, connect_timeout_seconds=NEVER_SECONDS, **settings),
        scripted_config([listed("add")], {"add": RESULT}, protocol="legacy", name="calc"),
    ]


def nothing(_tool: ToolSpecification) -> dict[str, Any]:
    return {}


def test_a_call_waits_for_the_server_of_its_prefix_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_targets, "SETTLE_SECONDS", NEVER_SECONDS)
    result: Any = call_tool(servers(), "calc_add", nothing)
    assert (result.text, capsys.readouterr().err) == ("5", "")


@pytest.mark.parametrize(("command", "item"), [("read", "calc+calc://pi"), ("prompt", "calc_greeting")])
def test_a_resource_and_a_prompt_wait_for_the_server_of_their_prefix_alone(
    run: Run, directory: Path, command: str, item: str
) -> None:
    (directory / "calc.py").write_text(FEATURES, encoding="utf-8")
    entries = {
        "asleep": {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]},
        "calc": {"command": sys.executable, "args": ["-m", "bridge", "serve", str(directory / "calc.py")]},
    }
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    done = run(command, "mcp.json", item)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "here", "")


def test_a_call_of_a_tool_without_a_prefix_waits_for_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_targets, "SETTLE_SECONDS", 1.5)
    with pytest.raises(UnknownToolError):
        call_tool(servers(), "missing", nothing)
    assert "without the server 'asleep': no answer within 1.5 seconds" in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_list_names_the_server_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(of_targets, "SETTLE_SECONDS", NEVER_SECONDS)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with provided_tools(servers(), features=("resources", "prompts"), timeout_seconds=1.5) as provider:
            assert [tool.name for tool in provider.tools] == ["calc_add"]
    assert capsys.readouterr().err == (
        "bridge: without the server 'asleep': no answer within 1.5 seconds; --timeout SECONDS waits longer\n"
    )

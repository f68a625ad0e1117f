"""The id of a call: its caller gets it, and finds the call by it in the logs of all servers that it has passed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, MCPError

from bridge.types import REQUEST_ID_META_KEY
from tests.gateway.conftest import write_config
from tests.processes import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60
TOOLS = """
from bridge import ToolError, resource, prompt, tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

@tool
async def fail() -> int:
    "Fail."
    raise ToolError("it does")

@resource("notes://today")
def today() -> str:
    "Return the notes of today."
    return "none"

@prompt
def ask() -> str:
    "Ask."
    return "Well?"
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def asked(client: Client) -> list[str]:
    """Make requests of each kind; return their ids."""
    results = [
        await client.call_tool("add", {"a": 1, "b": 2}),
        await client.call_tool("fail", {}),
        await client.read_resource("notes://today"),
        await client.get_prompt("ask", {}),
    ]
    ids = [str((result.meta or {})[REQUEST_ID_META_KEY]) for result in results]
    with pytest.raises(MCPError) as raised:
        await client.call_tool("subtract", {})
    return [*ids, raised.value.error.data["requestId"]]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_caller_finds_its_calls_by_their_ids_in_the_audit_logs_of_all_servers(
    mode: str, tmp_path: Path
) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(TOOLS, encoding="utf-8")
    outer, inner = tmp_path / "outer.jsonl", tmp_path / "inner.jsonl"
    http = ("--transport", "http", "--port", "0")
    with serving("-m", "bridge", "serve", str(tools), *http, "--audit-log", str(inner)) as upstream:
        config = write_config(tmp_path / "mcp.json", sums={"url": f"{upstream.origin}/mcp"})
        with serving("-m", "bridge", "serve", config, *http, "--audit-log", str(outer)) as gateway:
            with anyio.fail_after(DEADLINE_SECONDS):
                async with Client(gateway.origin + "/mcp", mode=mode) as client:
                    ids = await asked(client)
    assert len(set(ids)) == 5
    assert [each["request_id"] for each in records(outer)] == ids
    assert [each["result_bytes"] > 0 for each in records(outer)] == [True, True, True, True, False]
    assert [each["parent_request_id"] for each in records(inner)] == ids[:4]
    assert ids[:4] != [each["request_id"] for each in records(inner)]


async def test_a_server_that_records_nothing_makes_no_ids(tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text(TOOLS, encoding="utf-8")
    with serving(
        "-m", "bridge", "serve", str(tools), "--transport", "http", "--port", "0", "--log-calls", "never"
    ) as server:
        with anyio.fail_after(DEADLINE_SECONDS):
            async with Client(server.origin + "/mcp", mode="2026-07-28") as client:
                result = await client.call_tool("add", {"a": 1, "b": 2})
    assert REQUEST_ID_META_KEY not in (result.meta or {})

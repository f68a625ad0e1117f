"""Replicas with the same state keys: one asks the client, another receives the answer."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Process, Run, Start

DEADLINE_SECONDS = 40
FIRST, SECOND = "first" * 8, "second" * 8
ASKING = """
    from bridge import InvocationContext, tool


    @tool
    async def greet(context: InvocationContext) -> str:
        '''Ask for a name, and greet.'''
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("Who?", form, key="name")
        return f"Hello {answer.content['name']}"
"""


@pytest.fixture(autouse=True)
def asking(directory: Path) -> None:
    (directory / "asking.py").write_text(dedent(ASKING), encoding="utf-8")


def replica(start: Start, keys: str) -> Any:
    arguments = ["serve", "asking.py", "--name", "asking", "--transport", "http", "--port", "0"]
    return start(*arguments, env={"BRIDGE_STATE_KEYS": keys})


def call(replica: Process, **more: Any) -> httpx.Response:
    """Call the tool, in the modern era, as a client with elicitation."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    return httpx.post(
        replica.url(),
        headers={
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": "greet",
        },
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "greet", "arguments": {}, "_meta": meta, **more},
        },
        timeout=DEADLINE_SECONDS,
    )


@pytest.mark.parametrize(("answering", "is_accepted"), [(FIRST, True), (f"{SECOND},{FIRST}", True), (SECOND, False)])
def test_the_answer_to_a_question_of_one_replica_is_opened_by_one_that_has_its_key(
    start: Start, answering: str, is_accepted: bool
) -> None:
    with replica(start, FIRST) as one, replica(start, answering) as other:
        asked = call(one).json()["result"]
        assert asked["resultType"] == "input_required"
        given = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        answer = call(other, requestState=asked["requestState"], inputResponses=given)
    if is_accepted:
        assert answer.json()["result"]["content"][0]["text"] == "Hello Ada"
    else:
        assert answer.status_code == 400
        assert "requestState" in answer.json()["error"]["message"]


def test_a_short_key_is_refused_with_what_to_do(run: Run) -> None:
    done = run("serve", "asking.py", "--transport", "http", "--port", "0", env={"BRIDGE_STATE_KEYS": f"{FIRST},short"})
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "key 2 of --state-keys has 5 bytes, and must have at least 32: create one by `openssl rand -hex 32`" in said
    assert "short" not in said

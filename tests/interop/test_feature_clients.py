"""Clients of other projects list, read and render the features of ``bridge serve``, over stdio and HTTP.

The official client for Python, the TypeScript SDK's, FastMCP's, pydantic-ai's, and MCP Inspector's command line. Those
that can complete arguments do so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp_types import PromptReference, ResourceTemplateReference

from tests import processes
from tests.interop import features
from tests.interop.counterpart import DEADLINE_SECONDS, ROUTES, Route, connected, serving
from tests.interop.packages import (
    INSPECTOR_VERSION,
    TYPESCRIPT_CLIENT_VERSION,
    fastmcp_python,
    npm_package,
    pydantic_ai_python,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FEATURES = str(Path(features.__file__))
CLIENTS = Path(__file__).parent
PROCESS_SECONDS = 120
COMMAND = [sys.executable, "-m", "bridge", "serve", FEATURES]
TEMPLATE = "notes://by/{author}{?language}"
SEAL = b64encode(features.BLOB).decode()
TEXT = {"uri": "notes://today", "mimeType": "text/markdown", "text": "# Été"}
BLOB = {"uri": "notes://seal", "mimeType": "image/png", "blob": SEAL}
NOTE = '{"author":"ada","language":"fr"}'
TEMPLATED = {"uri": "notes://by/ada?language=fr", "mimeType": "application/json", "text": NOTE}
MESSAGES = [
    {"role": "user", "content": {"type": "text", "text": "Be strict: x = 1"}},
    {"role": "assistant", "content": {"type": "text", "text": "I will."}},
]
SEEN: dict[str, Any] = {
    "resources": ["notes://today", "notes://seal"],
    "templates": [TEMPLATE],
    "prompts": ["review"],
    "text": [TEXT],
    "blob": [BLOB],
    "templated": [TEMPLATED],
    "messages": MESSAGES,
    "completed": ["strict", "sparse"],
}
"""Results of a client that returns MCP's JSON."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """A server over HTTP."""
    with serving(target=FEATURES) as origin:
        yield origin


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, origin: str) -> str:
    """A URL, or a command line as a JSON array."""
    return json.dumps(COMMAND) if request.param == "stdio" else f"{origin}/mcp"


def printed(*command: str, **environment: str) -> Any:
    """Return the JSON that a client printed."""
    done = subprocess.run(
        command,
        cwd=processes.ROOT,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def dumped(items: list[Any]) -> list[Any]:
    return [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items]


@pytest.mark.anyio
@pytest.mark.parametrize("route", [route for route in ROUTES if route.mode != "auto"], ids=str)
async def test_the_official_client_reads_renders_and_completes(route: Route, origin: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with connected(route, origin, target=FEATURES) as counterpart:
            client = counterpart.client
            prompt = PromptReference(type="ref/prompt", name="review")
            template = ResourceTemplateReference(type="ref/resource", uri=TEMPLATE)
            rendered = await client.get_prompt("review", {"code": "x = 1", "style": "strict"})
            templates = (await client.list_resource_templates()).resource_templates
            seen = {
                "resources": [str(each.uri) for each in (await client.list_resources()).resources],
                "templates": [each.uri_template for each in templates],
                "prompts": [each.name for each in (await client.list_prompts()).prompts],
                "text": dumped((await client.read_resource("notes://today")).contents),
                "blob": dumped((await client.read_resource("notes://seal")).contents),
                "templated": dumped((await client.read_resource("notes://by/ada?language=fr")).contents),
                "messages": dumped(rendered.messages),
                "completed": (await client.complete(prompt, {"name": "style", "value": "s"})).completion.values,
            }
            assert seen == SEEN
            completed = await client.complete(template, {"name": "author", "value": "a"})
            assert completed.completion.values == ["ada", "alan"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_typescript_client_reads_renders_and_completes(mode: str, server: str) -> None:
    folder = npm_package("@modelcontextprotocol/client", TYPESCRIPT_CLIENT_VERSION)
    seen = printed("node", str(CLIENTS / "typescript_client.mjs"), str(folder), mode, server)
    assert seen.pop("authors") == ["ada", "alan"]
    assert seen == SEEN


@pytest.mark.slow
def test_fastmcps_client_reads_renders_and_completes(server: str) -> None:
    assert printed(fastmcp_python(), str(CLIENTS / "fastmcp_features_client.py"), server) == SEEN


@pytest.mark.slow
def test_pydantic_ais_client_reads_and_renders(server: str) -> None:
    seen = printed(pydantic_ai_python(), str(CLIENTS / "pydantic_ai_client.py"), server)
    assert [each["uri"] for each in seen["resources"]] == SEEN["resources"]
    assert [each["uri_template"] for each in seen["templates"]] == SEEN["templates"]
    (prompt,) = seen["prompts"]
    assert [(each["name"], each["required"]) for each in prompt["arguments"]] == [("code", True), ("style", False)]
    assert (seen["text"], seen["templated"]) == ("# Été", NOTE)
    assert (seen["blob"]["data"], seen["blob"]["media_type"]) == (SEAL, "image/png")
    rendered = seen["messages"]["messages"]
    assert [(each["role"], each["content"]["content"]) for each in rendered] == [
        ("user", "Be strict: x = 1"),
        ("assistant", "I will."),
    ]


@pytest.mark.slow
def test_the_inspectors_command_line_reads_and_renders(server: str, tmp_path: Path) -> None:
    folder = npm_package("@modelcontextprotocol/inspector", INSPECTOR_VERSION)
    program = json.loads((folder / "package.json").read_text())["bin"]["mcp-inspector"]
    entry: dict[str, Any] = {"type": "streamable-http", "url": server}
    if server.startswith("["):
        command, *arguments = json.loads(server)
        entry = {"command": command, "args": arguments}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"served": entry}}), encoding="utf-8")

    def inspected(method: str, *options: str) -> Any:
        at = "--cli", "--config", str(path), "--server", "served", "--cwd", str(processes.ROOT)
        command = "node", str(folder / program), *at, "--method", method, *options
        return printed(*command, MCP_INSPECTOR_SECRET_STORE="memory")

    assert [each["uri"] for each in inspected("resources/list")["resources"]] == SEEN["resources"]
    listed = inspected("resources/templates/list")["resourceTemplates"]
    assert [each["uriTemplate"] for each in listed] == SEEN["templates"]
    for expected in (TEXT, BLOB, TEMPLATED):
        assert inspected("resources/read", "--uri", expected["uri"])["contents"] == [expected]
    assert [each["name"] for each in inspected("prompts/list")["prompts"]] == SEEN["prompts"]
    given = "--prompt-name", "review", "--prompt-args", "code=x = 1", "style=strict"
    assert inspected("prompts/get", *given)["messages"] == MESSAGES

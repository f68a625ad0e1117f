"""Skills with FastMCP, both ways: its client reads ours, also through a gateway, and our client reads its."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import McpToolProvider, ServerConfig, StdioTransport
from tests.interop.packages import compared_python
from tests.processes import serving
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = str(Path(__file__).with_name("fastmcp_skills.py"))
DEADLINE_SECONDS = 120
FILES = {"examples/deep/a.md": "An example.\n", "notes.txt": "Été"}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("comparison")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two skills."""
    write_skill(tmp_path / "skills", "refunds", FILES)
    write_skill(tmp_path / "skills", "billing/taxes")
    return tmp_path / "skills"


def expected(prefix: str = "") -> dict[str, dict[str, str]]:
    return {
        f"{prefix}skill://refunds/SKILL.md": {"SKILL.md": instructions("refunds"), **FILES},
        f"{prefix}skill://billing/taxes/SKILL.md": {"SKILL.md": instructions("taxes")},
    }


@pytest.fixture(params=["server", "gateway"])
def served(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a server with the skills, or of a gateway to two servers, and what their URIs begin with."""
    with ExitStack() as stack:
        over_http = ("--transport", "http", "--port", "0")
        url = stack.enter_context(serving("-m", "bridge", "serve", str(folder), *over_http)).origin + "/mcp"
        if request.param == "server":
            yield url, ""
            return
        other = {"command": sys.executable, "args": ["-m", "bridge", "serve", "servers/calculator.py"]}
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"url": url}, "other": other}}))
        gateway = stack.enter_context(serving("-m", "bridge", "serve", str(config), *over_http))
        yield f"{gateway.origin}/mcp", "shop+"


def test_fastmcps_client_reads_and_verifies_our_skills(served: tuple[str, str]) -> None:
    url, prefix = served
    done = subprocess.run(
        [compared_python(), PROGRAM, "read", url], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected(prefix)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["serve", "proxy"])
async def test_our_client_reads_and_verifies_fastmcps_skills(kind: str, folder: Path) -> None:
    transport = StdioTransport(compared_python(), args=(PROGRAM, kind, str(folder)), inherit_env="all")
    config = ServerConfig(name="fast", transport=transport, required=True, protocol="2026-07-28")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([config]) as provider:
            found = {}
            for skill in await provider.skills.list():
                texts = {}
                for file in skill.files or ():
                    content = (await provider.skills.read(skill, file.uri)).content
                    text = content if isinstance(content, str) else content.decode()
                    texts[file.uri.removeprefix(f"{skill.root}/")] = text
                found[skill.uri] = texts
                assert skill.description == "Do it well"
    assert found == expected()

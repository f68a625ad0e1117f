"""Tasks between this project and FastMCP, whose package fastmcp-tasks speaks the extension (SEP-2663)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import McpToolProvider, ServerConfig, StdioTransport
from bridge.errors import OutcomeUnknownError
from tests.client.reports import listening
from tests.client.tasks.test_remote_tasks import SERVED
from tests.gateway.conftest import write_config
from tests.interop.counterpart import serving
from tests.interop.packages import fastmcp_tasks_python
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
DEADLINE_SECONDS = 120


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with FastMCP and its tasks."""
    return fastmcp_tasks_python()


@pytest.fixture(scope="module", params=["server", "gateway"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """URL of our server, or of a gateway before it, and the prefix of its tools."""
    with serving(target=SERVED) as origin:
        if request.param == "server":
            yield f"{origin}/mcp", ""
            return
        entry = {"type": "http", "url": f"{origin}/mcp"}
        config = write_config(tmp_path_factory.mktemp("config") / "mcp.json", one=entry, two=entry)
        with serving(target=config) as gateway:
            yield f"{gateway}/mcp", "two_"


@pytest.mark.anyio
async def test_the_client_of_fastmcp_drives_our_tasks(python: str, served: tuple[str, str]) -> None:
    url, prefix = served
    with anyio.fail_after(DEADLINE_SECONDS):
        async with listening() as reports:
            command = [python, str(HERE / "fastmcp_tasks_client.py"), url, str(reports.port), prefix]
            done = await anyio.run_process(command, cwd=ROOT, check=False)
            assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {
        "results": [3, 3, 5],
        "greeted": "Ada Lovelace",
        "failed": [True, "it failed"],
        "states": ["completed", "cancelled"],
    }


@pytest.mark.anyio
async def test_our_client_drives_the_tasks_of_fastmcp(python: str) -> None:
    transport = StdioTransport(python, args=(str(HERE / "fastmcp_tasks_server.py"),), cwd=str(ROOT))
    config = ServerConfig(name="fast", transport=transport)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider([config]) as provider:
            for name in ("add", "add_directly"):
                assert (await provider.call(name, a=1, b=2)).structured_content == {"result": 3}
            failed = await provider.call("fail")
            assert (failed.is_error, failed.text) == (True, "Error calling tool 'fail': it failed")
            task = await provider.start("add", a=1, b=2)
            assert task.id
            assert (await provider.task(str(task)).result()).structured_content == {"result": 3}
            held = await provider.start("hold")
            assert (await held.status()).status == "working"
            await held.cancel()
            with pytest.raises(OutcomeUnknownError, match="the task was cancelled"):
                await held.result()
            assert (await (await provider.start("add_directly", a=1, b=2)).result()).text == "3"

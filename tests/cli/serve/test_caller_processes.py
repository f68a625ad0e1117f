"""A process for each caller of a gateway, where the configuration asks for it."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from bridge.client import McpToolProvider
from bridge.client.caller_processes import CallerProcesses
from bridge.tools.caller import Caller
from tests import forks
from tests.client.conftest import DEADLINE_SECONDS, SERVED
from tests.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Start

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")]

KEYS = {"ada": "a-key-of-ada-with-enough-characters", "bob": "a-key-of-bob-with-enough-characters"}


@pytest.mark.parametrize("start_mode", ["eager", "lazy"])
async def test_each_caller_has_a_process_of_its_own(start: Start, directory: Path, start_mode: str) -> None:
    entry = {
        **forks.entry("-m", "bridge", "serve", SERVED),
        "cwd": str(ROOT),
        "start": start_mode,
        "processPer": "caller",
    }
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"served": entry}}))
    keys = directory / "keys"
    keys.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
    keys.chmod(0o600)
    with start("serve", "mcp.json", "--transport", "http", "--port", "0", "--api-keys", str(keys)) as process:
        url = process.url()
        pids: dict[str, list[str]] = {}
        with anyio.fail_after(DEADLINE_SECONDS):
            for name in (*KEYS, *KEYS):
                headers = {"Authorization": f"Bearer {KEYS[name]}"}
                async with McpToolProvider({"mcpServers": {"gateway": {"url": url, "headers": headers}}}) as provider:
                    pids.setdefault(name, []).append((await provider.call("pid")).text)
        full = {"Authorization": f"Bearer {KEYS['ada']}"}
        async with httpx.AsyncClient(headers=full, timeout=DEADLINE_SECONDS) as client:
            status = (await client.get(url.replace("/mcp", "/status"))).json()
        assert [server["callerConnections"] for server in status["servers"]] == [2]
        assert all(len(set(each)) == 1 for each in pids.values())
        assert pids["ada"] != pids["bob"]
        assert process.end(signal.SIGTERM) == 0


def test_callers_are_told_apart_by_issuer_and_subject() -> None:
    callers = CallerProcesses()
    ada = callers.of(Caller("ada", issuer="a"), {})
    assert ada is not None
    assert callers.of(Caller("ada", issuer="a", scopes=frozenset({"x"})), {}) is ada
    assert callers.of(Caller("ada", issuer="b"), {}) is not ada
    assert callers.of(None, {}) is None

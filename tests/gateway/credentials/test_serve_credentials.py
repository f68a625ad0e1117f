"""``bridge serve`` with credentials of callers, and ``bridge credentials``: real processes, in both eras."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge.client import McpToolProvider
from bridge.gateway.credentials.sealing import CredentialSeal
from bridge.gateway.credentials.sqlite_store import SqliteCredentialStore
from bridge.gateway.credentials.store import Credential, CredentialKey
from tests.gateway.conftest import write_config
from tests.gateway.credentials.seeing import Seeing, seeing
from tests.processes import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STATE_KEY = "state-key-with-at-least-32-characters"
KEYS = {"key-1": "key-of-ada-with-enough-characters", "key-2": "key-of-bob-with-enough-characters"}
DEADLINE_SECONDS = 90


@pytest.fixture(scope="module")
def server() -> Iterator[Seeing]:
    with seeing() as server:
        server.accepted, server.needs_credentials = {"Bearer of-key-1", "Bearer of-key-2"}, True
        yield server


async def give(file: Path, subject: str, secret: str) -> None:
    """Keep a secret, as another process of the gateway."""
    store = SqliteCredentialStore(file, CredentialSeal([STATE_KEY.encode()]))
    await store.open()
    await store.put(CredentialKey("key", subject, "notes"), Credential(kind="secret", secret=secret))
    await store.close()


async def shown(origin: str, name: str, protocol: str, count: int = 1) -> list[str]:
    """Return the tools that a caller sees, and whom the server sees in its calls."""
    entry = {"url": f"{origin}/mcp", "headers": {"Authorization": f"Bearer {KEYS[name]}"}, "protocol": protocol}
    async with McpToolProvider({"mcpServers": {"gateway": entry}}) as provider:
        names = [tool.name for tool in provider.tools]
        found = {
            (await provider.call(names[0], {"nonce": 7} if names[0] == "whoami" else {})).text for _ in range(count)
        }
        return [*names, *sorted(found)]


@pytest.mark.parametrize("protocol", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["one", "workers"])
async def test_each_caller_of_a_served_gateway_lists_and_calls_with_its_own(
    server: Seeing, tmp_path: Path, protocol: str, workers: tuple[str, ...]
) -> None:
    file = tmp_path / "credentials.db"
    config = write_config(tmp_path / "mcp.json", notes={"url": server.url, "auth": {"type": "secret", "per": "caller"}})
    keys = [part for key in KEYS.values() for part in ("--api-key", key)]
    options = ["--transport", "http", "--port", "0", "--credential-store", str(file), *keys, *workers]
    arguments = ["-m", "bridge", "serve", config, *options]
    with anyio.fail_after(DEADLINE_SECONDS):
        with serving(*arguments, environment={"BRIDGE_STATE_KEYS": STATE_KEY}) as gateway:
            assert (await shown(gateway.origin, "key-1", protocol))[0] == "notes_connect"
            await give(file, "key-1", "of-key-1")
            found: dict[str, list[str]] = {}

            async def call(name: str) -> None:
                found[name] = await shown(gateway.origin, name, protocol, count=20)

            await give(file, "key-2", "of-key-2")
            async with anyio.create_task_group() as tasks:
                for name in KEYS:
                    tasks.start_soon(call, name)
            assert found == {name: ["whoami", f"Bearer of-{name} 7"] for name in KEYS}
        with serving(*arguments, environment={"BRIDGE_STATE_KEYS": STATE_KEY}) as gateway:  # after a restart
            assert await shown(gateway.origin, "key-2", protocol) == ["whoami", "Bearer of-key-2 7"]


async def test_an_operator_lists_and_forgets_credentials_and_sees_no_values(tmp_path: Path) -> None:
    file = tmp_path / "credentials.db"
    await give(file, "key-1", "hush-hush")
    await give(file, "key-2", "hush-hush")

    def credentials(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bridge", "credentials", *arguments, "--credential-store", str(file)]
        environment = {"BRIDGE_STATE_KEYS": STATE_KEY, "PATH": "", "HOME": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)

    listed = json.loads(credentials("list", "--json").stdout)
    assert [(each["issuer"], each["subject"], each["server"], each["type"]) for each in listed] == [
        ("key", "key-1", "notes", "secret"),
        ("key", "key-2", "notes", "secret"),
    ]
    text = credentials("list").stdout
    assert "SUBJECT" in text
    assert "key-1" in text
    assert "hush" not in text
    assert credentials("forget").returncode == 2
    assert credentials("forget", "--subject", "key-1").stderr == "forgot 1 credential\n"
    assert [each["subject"] for each in json.loads(credentials("list", "--json").stdout)] == ["key-2"]
    assert credentials("forget", "--subject", "key-1").returncode == 1
    assert credentials("forget", "--all").stderr == "forgot 1 credential\n"


def test_credentials_in_redis_are_those_of_a_named_gateway(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bridge", "credentials", "forget", "--all", "--redis-url", "redis://127.0.0.1:1"]
    environment = {"BRIDGE_STATE_KEYS": STATE_KEY, "PATH": "", "HOME": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (ended.returncode, "give the --name of the gateway" in ended.stderr) == (2, True)
    environment["BRIDGE_NAME"] = "tools"
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (ended.returncode, "--name" in ended.stderr) == (1, False)

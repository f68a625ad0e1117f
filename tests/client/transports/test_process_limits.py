"""Limits of child processes, by real ones that exceed them."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.client import McpToolProvider, ServerConfig, StdioTransport
from bridge.client.transports.process_limits import ProcessLimits, delegated_group, limited
from bridge.errors import OutcomeUnknownError, ServerUnavailableError
from tests.client.conftest import opened
from tests.client.scripted import listed, scripted_config

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="a shell sets them")]

MEMORY_MIB = 300
HUNGRY = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        told = {"name": "hungry", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": told}
    elif message["method"] == "tools/call":
        if message["params"]["name"] == "eat":
            kept = bytearray(message["params"]["arguments"]["mib"] * 1024 * 1024)
        else:
            while True:
                pass
        result = {"content": [{"type": "text", "text": str(len(kept))}]}
    else:
        result = {"tools": []}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def hungry(**limits: Any) -> ServerConfig:
    transport = StdioTransport(sys.executable, args=("-c", HUNGRY), limits=ProcessLimits(**limits))
    return ServerConfig(name="hungry", transport=transport)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not enforce it")
async def test_a_process_gets_no_more_memory_than_its_limit() -> None:
    async with opened(hungry(memory_mib=MEMORY_MIB)) as connection:
        within = await connection.call_tool("eat", {"mib": MEMORY_MIB // 3})
        assert within["content"][0]["text"] == str(MEMORY_MIB // 3 * 1024 * 1024)
        with pytest.raises(OutcomeUnknownError) as caught:
            await connection.call_tool("eat", {"mib": MEMORY_MIB})
        assert f"if it has reached one of its limits (maxMemoryMib {MEMORY_MIB}), raise that" in str(caught.value)
        assert "MemoryError" in str(caught.value) or caught.value.failure.exit_code == -9
        assert (await connection.call_tool("eat", {"mib": 1}))["content"][0]["text"] == str(1024 * 1024)


async def test_a_process_is_killed_after_its_cpu_time() -> None:
    async with opened(hungry(cpu_seconds=1)) as connection:
        with pytest.raises(OutcomeUnknownError, match=r"maxCpuSeconds 1") as caught:
            await connection.call_tool("spin", {})
        assert caught.value.failure.exit_code is not None
        assert caught.value.failure.exit_code < 0
        assert connection.status().restarts <= 1


async def test_a_command_with_limits_that_is_not_there_is_named() -> None:
    config = replace(hungry(), transport=StdioTransport("no-such-program", limits=ProcessLimits(memory_mib=10)))
    with pytest.raises(ServerUnavailableError, match="command not found: 'no-such-program'"):
        async with opened(config):
            pass


async def test_a_server_runs_under_limits_as_without(caplog: pytest.LogCaptureFixture) -> None:
    config = scripted_config([listed("one")])
    assert isinstance(config.transport, StdioTransport)
    limits = ProcessLimits(memory_mib=MEMORY_MIB, cpus=0.5, cpu_seconds=60)
    with caplog.at_level(logging.WARNING, "bridge.client"):
        async with McpToolProvider(replace(config, transport=replace(config.transport, limits=limits))) as provider:
            assert [each.name for each in provider.tools] == ["one"]
    is_said = "maxCpus has no effect without a delegated control group" in caplog.text
    assert is_said == (delegated_group() is None)


def test_without_limits_the_command_is_run_as_it_is() -> None:
    with limited(["x", "y"], ProcessLimits(), "name", {}) as command:
        assert command == ["x", "y"]


@pytest.mark.skipif(delegated_group() is None, reason="no control group was delegated to this process")
def test_a_control_group_has_the_limits_and_is_removed() -> None:
    limits = ProcessLimits(memory_mib=64, cpus=0.5)
    with limited([sys.executable], limits, "a/b", {}) as command:
        group = Path(command[4])
        assert (group / "memory.max").read_text().strip() == str(64 * 1024 * 1024)
        assert (group / "cpu.max").read_text().split() == ["50000", "100000"]
    assert not group.exists()

"""A server that hangs delays no call of another, no list, and no reload."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anyio
import pytest

from bridge.client import ConnectionState, ServerConfig, StdioTransport
from tests.client.conftest import SERVED, stdio_config
from tests.gateway.between import between, text_of
from tests.processes import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform == "win32", reason="a signal stops the process")]


async def test_a_server_that_hangs_delays_nobody() -> None:
    """Its calls have ten minutes, which the test does not have."""
    # A fork would not be in the process group of the child.
    transport = StdioTransport(sys.executable, args=("-m", "bridge", "serve", SERVED), cwd=str(ROOT))
    hung = ServerConfig(name="hung", transport=transport, timeout_seconds=600)
    async with between(hung, stdio_config(name="other")) as (gateway, connection):
        [pid] = [each.connection.pid for each in gateway.status() if each.name == "hung"]
        assert pid is not None
        ended: list[Any] = []

        async def call_hung() -> None:
            ended.append(await connection.call_tool("hung_add", {"a": 1, "b": 2}))

        os.killpg(pid, signal.SIGSTOP)
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(call_hung)
                for number in range(20):
                    result = await connection.call_tool("other_add", {"a": number, "b": 1})
                    assert text_of(result) == str(number + 1)
                listed = await connection.list_tools()
                assert {"hung_add", "other_add"} <= {tool["name"] for tool in listed.tools}
                await gateway.reconfigure([hung, stdio_config(name="other", timeout_seconds=50)])
                assert text_of(await connection.call_tool("other_add", {"a": 1, "b": 1})) == "2"
                assert ended == []
                assert gateway.provider.connections["hung"].state is ConnectionState.READY
                os.killpg(pid, signal.SIGCONT)
        finally:
            os.killpg(pid, signal.SIGCONT)
        assert [text_of(each) for each in ended] == ["3"] * 20

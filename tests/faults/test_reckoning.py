"""Tests of the fault tests: each kind of damage is found if it is there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from bridge import ServerConfig, ToolBox, tool
from bridge.client import McpToolProvider, MemoryTransport
from bridge.server.server import Server
from tests.faults.holdings import Holdings, leaked_processes
from tests.faults.served import note
from tests.faults.table import Outcome, markdown
from tests.faults.traffic import Ending, Traffic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="what is leaked is read from /proc, which Linux has"),
]

OUTCOME = Outcome(
    fault="killed",
    route="stdio",
    survived=1,
    calls=10,
    answered=7,
    failed=3,
    lost=0,
    run_twice=0,
    untrue=0,
    leaked_processes=0,
    leaked_tasks=0,
    leaked_sockets=0,
)


async def test_a_task_that_does_not_end_is_found() -> None:
    before = Holdings.now()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever, name="forgotten")
        assert await before.leaked_tasks(seconds=0) == ["forgotten"]
        tasks.cancel_scope.cancel()
    assert await before.leaked_tasks() == []


async def test_a_socket_that_is_not_closed_is_found() -> None:
    before = Holdings.now()
    with socket.socket() as forgotten:
        inode = os.fstat(forgotten.fileno()).st_ino
        assert await before.leaked_sockets(seconds=0) == [f"socket:[{inode}]"]
    assert await before.leaked_sockets() == []


async def test_a_process_that_does_not_end_is_found_even_if_it_is_a_grandchild() -> None:
    code = (
        "import sys\n"
        "from subprocess import PIPE, Popen\n"
        "child = Popen(['cat'], stdin=PIPE, stdout=PIPE)\n"
        "child.stdin.write(b'there\\n'); child.stdin.flush(); child.stdout.readline()  # it has begun\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(  # noqa: ASYNC220 - short
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"FAULTS": "a-marker-of-this-test"},
    ) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert set(await leaked_processes("a-marker-of-this-test", seconds=0)) == {str(process.pid), str(grandchild)}
    assert await leaked_processes("a-marker-of-this-test") == []


async def test_a_lost_call_one_that_ran_twice_and_what_is_not_true_are_found(tmp_path: Path) -> None:
    @tool
    async def work(journal: str, call: str) -> str:
        note(journal, call)
        note(journal, call)
        return call

    @tool
    async def lie(journal: str, call: str) -> str:
        return call

    @tool
    async def never(journal: str, call: str) -> None:
        await anyio.sleep_forever()

    transport = MemoryTransport(Server(ToolBox([work, lie, never]), name="server"))
    async with McpToolProvider(ServerConfig(name="server", transport=transport)) as provider:
        traffic = Traffic(provider, tmp_path / "journal")
        assert await traffic.call()
        assert await traffic.call("lie")
        impatient = Traffic(provider, tmp_path / "other", patience_seconds=0.1)
        assert not await impatient.call("never")
    assert not await traffic.call()
    assert (traffic.run_twice, traffic.untrue(), traffic.lost) == (["call-0"], ["call-1"], [])
    assert list(traffic.failed) == ["call-2"]
    assert impatient.lost == ["call-0"]
    note(str(tmp_path / "journal"), "call-2")
    assert traffic.untrue() == ["call-1", "call-2"], "it said that it never ran"
    traffic.endings["call-0"] = Ending(is_error=False, text="call-7")
    assert traffic.untrue() == ["call-0", "call-1", "call-2"], "another call's result"


def test_the_table_has_a_row_for_each_fault_and_one_for_all() -> None:
    assert list(markdown([])) == []
    over_http = replace(OUTCOME, route="HTTP", survived=0, lost=1)
    assert list(markdown([OUTCOME, replace(OUTCOME, fault="cut"), over_http]))[2:] == [
        "| killed | stdio, HTTP | 2 | 1 | 20 | 14 | 6 | 1 | 0 | 0 | 0 | 0 |",
        "| cut | stdio | 1 | 1 | 10 | 7 | 3 | 0 | 0 | 0 | 0 | 0 |",
        "| all |  | 3 | 2 | 30 | 21 | 9 | 1 | 0 | 0 | 0 | 0 |",
    ]

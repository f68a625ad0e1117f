"""Tasks while their replicas are killed.

A task whose client has its ID is found until it expires. The journal has one line for each task of `work_once`,
however it ended: completed if the journal has its end, otherwise failed with an unknown outcome. A task of `work_again`
is run again by another replica.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.server.tasks.restarts import MAX_RUNS
from tests.cli.balancing import Balancer
from tests.cluster.calling import ACCEPT, MODERN
from tests.cluster.conftest import KEY
from tests.cluster.replicas import Replicas
from tests.redis_server import redis_server
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed"),
]

DEADLINE_SECONDS = 180
KILLS_OF_A_MINUTE = 60
SHORT_KILLS = 3
TASKS_BETWEEN = 12
CALLERS = 6
POLL_SECONDS = 0.1
TOOLS = "work_once", "work_again"
SUPPORTS_TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@dataclass
class Tasks:
    """Tasks that clients have created, and their ends.

    Attributes:
        ended: Last state of each task, by the call's ID.
        broken: Calls whose response did not arrive, so that the ID of their task is unknown.
    """

    url: str
    journal: Path
    http: httpx.AsyncClient
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _progressed: anyio.Event = field(default_factory=anyio.Event)
    is_over: bool = False

    async def keep_creating(self, caller: int) -> None:
        """Create tasks one after another, and wait for the end of each."""
        number = 0
        while not self.is_over:
            call = f"{TOOLS[number % 2]}-{caller}-{number}"
            number += 1
            created = await self._created(call)
            if created is not None:
                self.ended[call] = await self._end_of(created)
                self._progressed.set()
                self._progressed = anyio.Event()

    async def more(self, tasks: int) -> None:
        """Wait until this many further tasks have ended."""
        until = len(self.ended) + tasks
        while len(self.ended) < until:
            await self._progressed.wait()

    def runs(self) -> Counter[str]:
        """Return how often each call began, and ended."""
        return Counter(self.journal.read_text(encoding="utf-8").split())

    async def _created(self, call: str) -> str | None:
        arguments = {"journal": str(self.journal), "call": call}
        name = call.partition("-")[0]
        answer = await self._answer("tools/call", name, {"name": name, "arguments": arguments})
        if answer is None:
            self.broken.append(call)
            return None
        task_id: str = answer["result"]["taskId"]
        return task_id

    async def _end_of(self, task_id: str) -> dict[str, Any]:
        while True:
            answer = await self._answer("tasks/get", task_id, {"taskId": task_id})
            if answer is not None:
                state: dict[str, Any] = answer["result"]
                if state["status"] != "working":
                    return state
            await anyio.sleep(POLL_SECONDS)

    async def _answer(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request; return None if there is no response, or the replica is not serving."""
        message = http_server.modern(http_server.request(method, params), SUPPORTS_TASKS)
        headers = ACCEPT | {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": name}
        try:
            response = await self.http.post(self.url, json=message, headers=headers, timeout=30)
        except httpx.TransportError:
            return None
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            return None
        answer: dict[str, Any] = response.json()
        return answer

    def check(self) -> dict[str, Counter[str]]:
        """Check that each task ended in a true state, and none ran twice; return the number of tasks in each state."""
        runs, outcomes = self.runs(), {name: Counter[str]() for name in TOOLS}
        for call, state in self.ended.items():
            tool, status = call.partition("-")[0], state["status"]
            outcomes[tool][status] += 1
            if status == "completed":
                assert state["result"]["content"] == [{"type": "text", "text": call}]
                assert runs[f"{call}.ended"] >= 1
            else:
                assert status == "failed"
                assert "its outcome is unknown" in state["error"]["message"]
        # A run that was killed before its first line is counted by the replicas and not in the journal.
        allowed = {"work_once": 1, "work_again": MAX_RUNS}
        assert {call: times for call, times in runs.items() if times > allowed[call.partition("-")[0]]} == {}
        return outcomes


@asynccontextmanager
async def going_on(folder: Path, redis_url: str) -> AsyncIterator[tuple[Replicas, Tasks]]:
    """Context during which clients create tasks at replicas behind a balancer."""
    limits = httpx.Limits(max_keepalive_connections=0)  # so that each request may reach another replica
    async with Replicas(redis_url) as replicas, httpx.AsyncClient(limits=limits) as http:
        balancer = Balancer(replicas.ports, is_sticky=False)
        async with balancer.running():
            tasks = Tasks(f"http://127.0.0.1:{balancer.port}/mcp", folder / "journal", http)
            async with anyio.create_task_group() as callers:
                for caller in range(CALLERS):
                    callers.start_soon(tasks.keep_creating, caller)
                yield replicas, tasks
                tasks.is_over = True


async def test_tasks_go_on_while_replicas_are_killed(tmp_path: Path) -> None:
    with anyio.fail_after(DEADLINE_SECONDS), redis_server(tmp_path) as redis:
        async with going_on(tmp_path, redis.url) as (replicas, tasks):
            for _ in range(SHORT_KILLS):
                await tasks.more(TASKS_BETWEEN)
                await replicas.start(await replicas.kill())
            await tasks.more(TASKS_BETWEEN)
        tasks.check()


@pytest.mark.faults
async def test_tasks_go_on_while_every_second_for_a_minute_a_replica_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with anyio.fail_after(2 * DEADLINE_SECONDS), redis_server(tmp_path) as redis:
        async with going_on(tmp_path, redis.url) as (replicas, tasks), anyio.create_task_group() as starting:
            begun_at = anyio.current_time()
            for second in range(1, KILLS_OF_A_MINUTE + 1):
                await anyio.sleep_until(begun_at + second)
                starting.start_soon(replicas.start, await replicas.kill())
        outcomes = tasks.check()
    for tool, counts in outcomes.items():
        unanswered = sum(call.startswith(tool) for call in tasks.broken)
        ended = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        again = sum(times - 1 for call, times in tasks.runs().items() if call.startswith(tool) and times > 1)
        told = f"tasks of {tool}: {ended}, {again} runs again; none lost; {unanswered} calls without an answer"
        request.node.user_properties.append((KEY, told))

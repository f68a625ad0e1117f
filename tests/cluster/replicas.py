"""Three processes that are one server, each at a port of its own, which are killed and started again."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from tests.ports import free_port
from tests.processes import serving

if TYPE_CHECKING:
    from tests.processes import ServerProcess

SERVED = "tests/cluster/served.py:TOOLS"
COUNT = 3


class Replicas:
    """The processes.

    Args:
        redis_url: Redis of the replicas.
    """

    def __init__(self, redis_url: str) -> None:
        self.ports = [free_port() for _ in range(COUNT)]
        self.kills = 0
        self._redis_url = redis_url
        self._running: dict[int, tuple[ServerProcess, ExitStack]] = {}
        self._started = anyio.Event()

    async def __aenter__(self) -> Self:
        async with anyio.create_task_group() as starting:
            for index in range(COUNT):
                starting.start_soon(self.start, index)
        return self

    async def __aexit__(self, *_: object) -> None:
        for index in self.running:
            await anyio.to_thread.run_sync(self._running.pop(index)[1].close)

    @property
    def running(self) -> list[int]:
        """Processes that serve, in the order of their starts."""
        return list(self._running)

    async def start(self, index: int) -> None:
        """Start one, at the port that it had."""
        stack = ExitStack()
        words = ("-m", "bridge", "serve", SERVED, "--name", "cluster", "--transport", "http")
        context = serving(*words, "--port", str(self.ports[index]), environment={"BRIDGE_REDIS_URL": self._redis_url})
        server = await anyio.to_thread.run_sync(partial(stack.enter_context, context))
        self._running[index] = (server, stack)
        self._started.set()

    async def kill(self) -> int:
        """Kill the one that has run longest by SIGKILL, as soon as one runs; return which it was."""
        while not self._running:
            self._started = anyio.Event()
            await self._started.wait()
        index = self.running[0]
        server, stack = self._running.pop(index)
        server.process.kill()
        self.kills += 1
        await anyio.to_thread.run_sync(stack.close)
        return index

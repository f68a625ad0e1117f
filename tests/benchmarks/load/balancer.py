"""A TCP load balancer as a process: ``python -m tests.benchmarks.load.balancer PORT...`` prints its address."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from tests.benchmarks.processes import running
from tests.cli.balancing import Balancer, is_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anyio.abc import SocketStream

_PROBE_SECONDS = 0.1
_ANSWER_SECONDS = 2


class ProbingBalancer(Balancer):
    """Balancer that polls the readiness of its servers and distributes connections among the ready ones, in turn.

    If no server is ready, all are tried.

    Args:
        ports: Ports of the servers, now or later.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(ports, is_sticky=False)
        self._ready: set[int] = set()

    async def probe(self, port: int) -> None:
        """Poll one server for ever."""
        while True:
            found = False
            with anyio.move_on_after(_ANSWER_SECONDS):
                found = await is_ready(port)
            (self._ready.add if found else self._ready.discard)(port)
            await anyio.sleep(_PROBE_SECONDS)

    async def _connected(self) -> SocketStream:
        turn = self.connections % len(self._ports)
        in_turn = self._ports[turn:] + self._ports[:turn]
        for port in sorted(in_turn, key=lambda port: port not in self._ready):
            try:
                return await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                self._ready.discard(port)
        raise ConnectionRefusedError


@contextmanager
def balancing(ports: Sequence[int], limit_seconds: float) -> Iterator[int]:
    """Balance connections between servers; yields the balancer's port.

    Args:
        ports: Ports of the servers, now or later.
        limit_seconds: Maximum lifetime of the balancer.
    """
    words = ("-m", f"{__package__}.balancer", *map(str, ports))
    with running(*words, limit_seconds=limit_seconds, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


async def _balance(ports: Sequence[int]) -> None:
    balancer = ProbingBalancer(ports)
    async with balancer.running(), anyio.create_task_group() as probing:
        for port in ports:
            probing.start_soon(balancer.probe, port)
        print(balancer.port, flush=True)  # noqa: T201 - what it has to say


if __name__ == "__main__":
    anyio.run(_balance, list(map(int, sys.argv[1:])))

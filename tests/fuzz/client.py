"""``python -m tests.fuzz.client TRANSPORT ERA FLAG TARGET SEED SECONDS``: a provider behind `tests.fuzz.hostile`.

It writes a line of JSON for each batch: the number of inputs, the problems, and its memory. A call of the hostile tool
may fail with any of bridge's errors, in time. After each batch the server behaves well, and has to be usable.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from bridge.cli.reporting import configure_logging
from bridge.client import CallOptions, HttpTransport, McpToolProvider, ReconnectPolicy, ServerConfig, StdioTransport
from bridge.errors import BridgeError
from tests.benchmarks.load.memory import usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BATCH = 200
AT_ONCE = 32
CALL_SECONDS = 0.5
DEADLINE_SECONDS = 60
ROOT = Path(__file__).parents[2]
RECONNECT = ReconnectPolicy(
    first_delay_seconds=0.01, max_delay_seconds=0.05, health_check_seconds=5, health_timeout_seconds=2
)


class Fuzzing:
    """Calls of one provider.

    Args:
        provider: The provider of the server ``hostile``.
        flag: File that exists while the server has to behave well.
        seed: Seed of the random numbers.
    """

    def __init__(self, provider: McpToolProvider, flag: Path, seed: int) -> None:
        self._provider = provider
        self._flag = flag
        self._seed = seed
        self.tried = 0
        self.problems: list[str] = []

    async def batch(self) -> None:
        """Call the server while it is hostile, then while it behaves well."""
        self._flag.unlink(missing_ok=True)
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for number in range(self._seed + self.tried, self._seed + self.tried + BATCH):
                await limit.acquire_on_behalf_of(number)
                tasks.start_soon(self._one, limit, number)
        self.tried += BATCH
        self._flag.touch()
        try:
            with anyio.fail_after(DEADLINE_SECONDS):
                while not await self._is_usable():  # noqa: ASYNC110 - there is no event for it
                    await anyio.sleep(0.01)
        except TimeoutError:
            status = self._provider.connections["hostile"].status()
            self.problems.append(f"batch up to {self._seed + self.tried}: it is not usable again: {status}")

    async def _one(self, limit: anyio.CapacityLimiter, number: int) -> None:
        connection = self._provider.connections["hostile"]
        works: list[Callable[[], Awaitable[object]]] = [
            lambda: connection.call_tool("fuzz", {"seed": number}, options=CallOptions(repeatable=number % 3 == 0)),
            lambda: connection.call_tool("fuzz", {"seed": number}),
            lambda: self._provider.call("fuzz", {"seed": number}),
            self._provider.refresh if number % 5 == 0 else lambda: self._provider.call("fuzz", {"seed": number}),
            lambda: self._provider.resources.list("hostile"),
        ]
        work = works[number % len(works)]
        try:
            with anyio.fail_after(DEADLINE_SECONDS):
                await work()
        except BridgeError:
            pass
        except TimeoutError:
            self.problems.append(f"seed {number}: a hang")
        except Exception as error:  # noqa: BLE001 - that is looked for
            self.problems.append(f"seed {number}: {error!r}")
        finally:
            limit.release_on_behalf_of(number)

    async def _is_usable(self) -> bool:
        try:
            await self._provider.refresh()
            return (await self._provider.call("add")).text == "42"
        except BridgeError:
            return False


async def main(transport: str, era: str, flag: Path, target: str, seed: int, seconds: float) -> None:
    """Call for this many seconds."""
    at: StdioTransport | HttpTransport
    if transport == "stdio":
        words = ("-m", "tests.fuzz.hostile", "stdio", era, str(flag))
        at = StdioTransport(sys.executable, args=words, cwd=str(ROOT))
    else:
        at = HttpTransport(target, kind="sse" if transport == "sse" else "http")
    config = ServerConfig(
        name="hostile",
        transport=at,
        protocol="2026-07-28" if era == "modern" else "legacy",
        timeout_seconds=CALL_SECONDS,
        max_call_seconds=2 * CALL_SECONDS,
        connect_timeout_seconds=10 * CALL_SECONDS,
        connect_wait_seconds=2 * CALL_SECONDS,
        trusted=True,
    )
    flag.touch()  # noqa: ASYNC240 - at once
    async with McpToolProvider([config], reconnect=RECONNECT, prefix="never") as provider:
        fuzzing, end = Fuzzing(provider, flag, seed), monotonic() + seconds
        while monotonic() < end:
            await fuzzing.batch()
            told = {"tried": fuzzing.tried, "problems": fuzzing.problems[:20], "kib": usage(os.getpid()).resident_kib}
            sys.stdout.write(json.dumps({**told, "count": len(fuzzing.problems)}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    configure_logging("warning")  # as for a gateway
    kind, the_era, the_flag, the_target, first, length = sys.argv[1:]
    anyio.run(main, kind, the_era, Path(the_flag), the_target, int(first), float(length))

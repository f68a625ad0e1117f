"""Traffic: calls that go on whatever happens, each with an id, and what became of each of them."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bridge.client import McpToolProvider

PATIENCE_SECONDS = 90
"""A call that has come to neither a result nor an error after this long is lost."""
CALLERS = 4
_NEVER_RAN = re.compile(r"it is not available|did not become ready|the connection is not open")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a call ended."""

    is_error: bool
    text: str


class Traffic:
    """Calls through a provider.

    Args:
        provider: Whose tools are called.
        journal: Where the server writes down each run.
        patience_seconds: How long a call may take to come to a result or an error.

    Attributes:
        endings: How each call ended, by its id; None for those that did not.
        tool: What the callers call.
    """

    def __init__(self, provider: McpToolProvider, journal: Path, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.endings: dict[str, Ending | None] = {}
        self.tool = "work"
        self._provider = provider
        self._journal = journal
        self._patience_seconds = patience_seconds
        self._ended = anyio.Event()
        journal.touch()

    async def call(self, tool: str | None = None, **arguments: Any) -> bool:
        """Make one call; returns whether it has a result."""
        call = f"call-{len(self.endings)}"
        self.endings[call] = None
        arguments |= {"call": call, "journal": str(self._journal)}
        with anyio.move_on_after(self._patience_seconds):
            result = await self._provider.call(tool or self.tool, arguments)
            self.endings[call] = Ending(result.is_error, result.text)
            self._ended.set()
            self._ended = anyio.Event()
            return not result.is_error
        return False

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Have several callers call without a pause while the context lasts."""
        is_over = False

        async def keep_calling() -> None:
            while not is_over:
                await self.call()
                await anyio.lowlevel.checkpoint()  # a tool that is not here is answered at once

        async with anyio.create_task_group() as tasks:
            for _ in range(CALLERS):
                tasks.start_soon(keep_calling)
            yield
            is_over = True

    async def more(self, calls: int = 2 * CALLERS) -> None:
        """Wait until so many further calls have ended, well or not."""
        for _ in range(calls):
            await self._ended.wait()

    async def until_answered(self, seconds: float) -> bool:
        """Call until a call has a result; returns whether one had, and all those after it, within this time."""
        with anyio.move_on_after(seconds):
            while not await self.call():
                await anyio.lowlevel.checkpoint()
            return all([await self.call() for _ in range(2 * CALLERS)])
        return False

    # --- what became of the calls ------------------------------------------------------------------------------------

    @property
    def answered(self) -> list[str]:
        """The calls with a result."""
        return [call for call, ending in self.endings.items() if ending is not None and not ending.is_error]

    @property
    def failed(self) -> dict[str, str]:
        """The calls with an error, each with its words."""
        return {call: ending.text for call, ending in self.endings.items() if ending is not None and ending.is_error}

    @property
    def lost(self) -> list[str]:
        """The calls with neither."""
        return [call for call, ending in self.endings.items() if ending is None]

    def runs(self) -> Counter[str]:
        """How often each call ran, as the server itself wrote down."""
        return Counter(self._journal.read_text(encoding="utf-8").split())

    @property
    def run_twice(self) -> list[str]:
        """The calls that ran more than once."""
        return [call for call, runs in self.runs().items() if runs > 1]

    def untrue(self) -> list[str]:
        """The calls whose ending is not what happened: another call's result, one without a run, or a run denied."""
        runs = self.runs()
        results = [
            call
            for call in self.answered
            if (ending := self.endings[call]) is not None and (ending.text != call or runs[call] == 0)
        ]
        return results + [call for call, text in self.failed.items() if _NEVER_RAN.search(text) and runs[call]]

"""Continuous calls during a fault, each with an ID, and their results."""

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
"""Seconds after which a call without a result or an error counts as lost."""
CALLERS = 4
_NEVER_RAN = re.compile(r"it is not available|did not become ready|the connection is not open")


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a call."""

    is_error: bool
    text: str


class Traffic:
    """Calls through a provider.

    Args:
        provider: The provider whose tools are called.
        journal: File to which the server writes each run.
        patience_seconds: Maximum seconds of a call.

    Attributes:
        endings: End of each call, by ID; None for those that have not ended.
        tool: Name of the tool.
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
        """Make one call; return True if it has a result."""
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
        """Let several callers call without a pause until the context ends."""
        is_over = False

        async def keep_calling() -> None:
            while not is_over:
                await self.call()
                await anyio.lowlevel.checkpoint()  # a missing tool is answered at once

        async with anyio.create_task_group() as tasks:
            for _ in range(CALLERS):
                tasks.start_soon(keep_calling)
            yield
            is_over = True

    async def more(self, calls: int = 2 * CALLERS) -> None:
        """Wait until this many further calls have ended, with a result or an error."""
        for _ in range(calls):
            await self._ended.wait()

    async def until_answered(self, seconds: float) -> bool:
        """Call until a call has a result; return True if one has, and all later ones too, within this time."""
        with anyio.move_on_after(seconds):
            while not await self.call():
                await anyio.lowlevel.checkpoint()
            return all([await self.call() for _ in range(2 * CALLERS)])
        return False

    # --- what became of the calls ------------------------------------------------------------------------------------

    @property
    def answered(self) -> list[str]:
        """Calls with a result."""
        return [call for call, ending in self.endings.items() if ending is not None and not ending.is_error]

    @property
    def failed(self) -> dict[str, str]:
        """Errors of the calls that failed, with their texts."""
        return {call: ending.text for call, ending in self.endings.items() if ending is not None and ending.is_error}

    @property
    def lost(self) -> list[str]:
        """Calls with neither a result nor an error."""
        return [call for call, ending in self.endings.items() if ending is None]

    def runs(self) -> Counter[str]:
        """Number of runs of each call, by the server's journal."""
        return Counter(self._journal.read_text(encoding="utf-8").split())

    @property
    def run_twice(self) -> list[str]:
        """Calls that ran more than once."""
        return [call for call, runs in self.runs().items() if runs > 1]

    def untrue(self) -> list[str]:
        """Calls with a wrong end: another call's result, a result without a run, or an error that denies a run."""
        runs = self.runs()
        results = [
            call
            for call in self.answered
            if (ending := self.endings[call]) is not None and (ending.text != call or runs[call] == 0)
        ]
        return results + [call for call, text in self.failed.items() if _NEVER_RAN.search(text) and runs[call]]

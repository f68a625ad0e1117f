"""A clock that stands still until the test says so."""

from __future__ import annotations

import anyio

DEADLINE_SECONDS = 60


class Clock:
    """Sleepers, which wake when the test says that their time has come.

    Attributes:
        asked: For how many seconds somebody wanted to sleep, in order.
    """

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._sleepers: list[tuple[float, anyio.Event]] = []
        self._came = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep until the test says so."""
        self.asked.append(seconds)
        sleeper = (seconds, anyio.Event())
        self._sleepers.append(sleeper)
        self._came.set()
        self._came = anyio.Event()
        try:
            await sleeper[1].wait()
        finally:
            self._sleepers.remove(sleeper)

    async def sleeping(self, seconds: float) -> anyio.Event:
        """Wait until somebody sleeps for so long; returns what wakes them."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                for asked, wake in self._sleepers:
                    if asked == seconds and not wake.is_set():
                        return wake
                await self._came.wait()

    async def elapse(self, seconds: float) -> None:
        """Wake somebody who sleeps for so long, as soon as there is one."""
        (await self.sleeping(seconds)).set()

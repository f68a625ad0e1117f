"""A clock that a test advances."""

from __future__ import annotations

import anyio

DEADLINE_SECONDS = 60


class Clock:
    """Sleeping tasks, which the test wakes; `wait` is given to `bridge.client.ReconnectPolicy`.

    Attributes:
        asked: Maximum seconds of each wait, in order.
    """

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._sleepers: list[tuple[float, anyio.Event]] = []
        self._came = anyio.Event()

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        """Wait for an event, or until the test ends the wait."""
        self.asked.append(seconds)
        sleeper = (seconds, anyio.Event())
        self._sleepers.append(sleeper)
        self._came.set()
        self._came = anyio.Event()
        try:
            await first_of(event, sleeper[1])
        finally:
            self._sleepers.remove(sleeper)

    async def sleeping(self, seconds: float) -> anyio.Event:
        """Wait until a task sleeps for this time; returns the event that wakes it."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                for asked, wake in self._sleepers:
                    if asked == seconds and not wake.is_set():
                        return wake
                await self._came.wait()

    async def elapse(self, seconds: float) -> None:
        """Wake a task that sleeps for this time, as soon as there is one."""
        (await self.sleeping(seconds)).set()


async def first_of(*events: anyio.Event) -> None:
    """Wait for one of these events."""
    async with anyio.create_task_group() as tasks:

        async def wait_for(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait_for, event)

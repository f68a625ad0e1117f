"""Start of the servers behind a gateway: requests are served, and lists are not complete yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import Event

if TYPE_CHECKING:
    from collections.abc import Callable


class Start:
    """A start that is under way until `end` is called. Belongs to one event loop.

    Lists, and requests of what is not listed, wait for its end; see `bridge.server.dispatch`.
    """

    def __init__(self) -> None:
        self.is_over = False
        """True once `end` was called."""
        self._over = Event()
        self._listeners: list[Callable[[], object]] = []

    def on_end(self, listener: Callable[[], object]) -> None:
        """Call a function at the end; now if the start is over."""
        if self.is_over:
            listener()
        else:
            self._listeners.append(listener)

    async def ended(self) -> None:
        """Wait for the end."""
        await self._over.wait()

    def end(self) -> None:
        """End the start, once."""
        if self.is_over:
            return
        self.is_over = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
        self._over.set()

"""News of a ToolBox's changes, carried from any thread to whoever listens on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio.lowlevel import EventLoopToken, current_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.tools.toolbox import ToolBox


class ToolChanges:
    """Tells listeners, each on the event loop that it came from, that the tools have changed.

    Changes that follow one another before a listener could be told are told once.

    Args:
        tools: Whose changes are told.
    """

    def __init__(self, tools: ToolBox) -> None:
        self._bells: dict[object, _Bell] = {}
        self.close = tools.on_change(self.ring)
        """Stop following the ToolBox."""

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` on this event loop after changes; returns what ends that, which may be called twice."""
        token = object()
        self._bells[token] = _Bell(current_token(), listener)

        def end() -> None:
            self._bells.pop(token, None)

        return end

    def ring(self) -> None:
        """Tell every listener; from any thread."""
        for bell in tuple(self._bells.values()):
            bell.ring()

    def __len__(self) -> int:
        return len(self._bells)


class _Bell:
    """One listener, and the loop on which it is called."""

    def __init__(self, loop: EventLoopToken, listener: Callable[[], None]) -> None:
        self._loop = loop
        self._listener = listener
        self._rung = False

    def ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        native: Any = self._loop.native_token
        # Asyncio's loop and trio's token both take a call from any thread, and neither lets the caller wait.
        schedule = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
        try:
            schedule(self._answer)
        except RuntimeError:
            # The loop has ended, and its listeners with it.
            return

    def _answer(self) -> None:
        # Before the call: a change during it rings again.
        self._rung = False
        self._listener()

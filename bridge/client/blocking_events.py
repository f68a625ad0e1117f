"""Events for programs without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from bridge import portal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from bridge.client.events import EventSubscription
    from bridge.events.occurrence import Event


class _Run(Protocol):
    def __call__(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any: ...


class BlockingEvents:
    """Blocking version of an `EventSubscription`: an iterator within a ``with`` block.

    Args:
        subscription: The subscription.
        run: Runs a coroutine function in the event loop of the provider.
    """

    def __init__(self, subscription: EventSubscription, run: _Run) -> None:
        self._subscription = subscription
        self._run = run
        self._entered = portal.entered_in_portal(subscription)

    @property
    def cursor(self) -> str | None:
        """Position after the event that was iterated last; see `EventSubscription.cursor`."""
        return self._subscription.cursor

    @property
    def gaps(self) -> int:
        """Number of times that its server has skipped events."""
        return self._subscription.gaps

    def __enter__(self) -> Self:
        """Begin the subscription; raises as `EventSubscription.__aenter__`."""
        self._entered.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the subscription; raises as `EventSubscription.__aexit__`."""
        self._subscription.require_begun()
        self._entered.__exit__(kind, error, traceback)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """Wait for the next event; raises as `EventSubscription.__anext__`, and StopIteration at the end."""
        try:
            event: Event = self._run(self._subscription.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return event

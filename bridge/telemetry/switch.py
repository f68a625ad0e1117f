"""The observer of this process, enabled before servers are built and connections are opened."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from bridge.telemetry.observer import Observer

_observer: Observer | None = None


def observer() -> Observer | None:
    """The observer; None while telemetry is disabled."""
    return _observer


def enable(new: Observer) -> None:
    """Enable telemetry."""
    global _observer  # noqa: PLW0603 - one process has one telemetry, as OpenTelemetry's own providers
    _observer = new


def disable() -> None:
    """Disable telemetry."""
    global _observer  # noqa: PLW0603 - as above
    _observer = None


@contextmanager
def enabled(new: Observer) -> Iterator[Observer]:
    """Enable telemetry in this block."""
    before = _observer
    enable(new)
    try:
        yield new
    finally:
        if before is None:
            disable()
        else:
            enable(before)


def observed_session(transport: str) -> AbstractContextManager[None]:
    """Observe a client's session for the length of a block.

    Args:
        transport: The client's transport: ``stdio`` or ``sse``.
    """
    return nullcontext() if _observer is None else _observer.session(Peer(transport, ""))

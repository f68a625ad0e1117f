"""The observer of this process, enabled before servers are built and connections are opened."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

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
    """A block that is as long as a session.

    Args:
        transport: How the client came: ``stdio`` or ``sse``.
    """
    active = observer()
    if active is None:
        return nullcontext()
    from bridge.telemetry.instruments import Peer  # noqa: PLC0415 - it imports OpenTelemetry

    return active.session(Peer(transport, ""))

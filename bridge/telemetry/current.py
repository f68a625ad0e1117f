"""The observer of this process, enabled before servers are built and connections are opened."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from bridge.telemetry.observer import Observer

_observer: Observer | None = None


def observer() -> Observer | None:
    """The observer; None while telemetry is disabled."""
    return _observer


def enable(new: Observer | None) -> None:
    """Enable telemetry; None disables it."""
    global _observer  # noqa: PLW0603 - one process has one telemetry, as OpenTelemetry's own providers
    _observer = new


def enable_telemetry(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Record spans and metrics of this process with OpenTelemetry: of AI services, servers and connections.

    Call it before servers are built and connections are opened. ``bridge serve`` does so with ``--traces`` and
    ``--metrics``.

    Args:
        tracer_provider: Receives the spans; None for the process's own provider.
        meter_provider: Receives the metrics; None for the process's own provider.
    """
    from opentelemetry.metrics import get_meter_provider  # noqa: PLC0415 - only where telemetry is wanted

    from bridge.telemetry.instruments import Instruments  # noqa: PLC0415 - as above
    from bridge.telemetry.observer import Observer  # noqa: PLC0415 - as above
    from bridge.telemetry.tracing import Tracing  # noqa: PLC0415 - as above

    enable(Observer(Instruments(meter_provider or get_meter_provider()), tracer=Tracing(tracer_provider)))


@contextmanager
def enabled(new: Observer) -> Iterator[Observer]:
    """Enable telemetry in this block."""
    before = _observer
    enable(new)
    try:
        yield new
    finally:
        enable(before)


def observed_session(transport: str) -> AbstractContextManager[None]:
    """Observe a client's session over ``stdio`` or ``sse`` for the length of a block."""
    return nullcontext() if _observer is None else _observer.session(Peer(transport, ""))

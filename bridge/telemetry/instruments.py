"""OpenTelemetry instruments of a process: duration histograms, counters and gauges.

They are made by OpenTelemetry's API, which is imported when they are. Without a meter provider, as where only traces or
logs are wanted, they record nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.telemetry.conventions import (
    AUDIT_LOST,
    BUCKETS_SECONDS,
    CONNECTED,
    CONNECTS,
    DESCRIPTIONS,
    ERROR_TYPE,
    METHOD,
    NETWORK_PROTOCOL,
    NETWORK_TRANSPORT,
    NO_ERRORS,
    OPERATION,
    OTHER,
    PROTOCOL_VERSION,
    RECONNECTS,
    REFUSALS,
    STATUS_CODE,
    TARGETS,
    TEAM,
    TOOLS_CALL,
    UPSTREAM,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.metrics import Histogram, MeterProvider

    Labels = Mapping[str, str | int]

_TRANSPORT_LABELS = {
    "stdio": {NETWORK_TRANSPORT: "pipe"},
    "memory": {NETWORK_TRANSPORT: "pipe"},
    "http": {NETWORK_TRANSPORT: "tcp", NETWORK_PROTOCOL: "http"},
    "sse": {NETWORK_TRANSPORT: "tcp", NETWORK_PROTOCOL: "http"},
}

_MAX_FAILURES = 100
"""Maximum labelled failures of a series; the others share one label, since a server may invent any error code."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side of a connection, as labels name it."""

    transport: str
    """``stdio``, ``http``, ``sse`` or ``memory``."""
    protocol_version: str
    """The negotiated revision of MCP; empty where it is not known."""
    upstream: str | None = None
    """The configured name of the server; None where the other side is a client."""
    address: tuple[tuple[str, str | int], ...] = ()
    """Labels with the server's address."""
    team: str = ""
    """The team of the caller, within bounds (`Observer.team`); empty for none."""

    @property
    def labels(self) -> dict[str, str | int]:
        """The labels of the peer."""
        labels: dict[str, str | int] = {**_TRANSPORT_LABELS.get(self.transport, {}), **dict(self.address)}
        if self.protocol_version:
            labels[PROTOCOL_VERSION] = self.protocol_version
        if self.upstream is not None:
            labels[UPSTREAM] = self.upstream
        if self.team:
            labels[TEAM] = self.team
        return labels


class TeamUsage:
    """Calls of the members of a team so far, in one series."""

    __slots__ = ("calls", "errors", "seconds")

    def __init__(self) -> None:
        self.calls, self.seconds = 0, 0.0
        self.errors: Counter[str] = Counter()
        """Failed calls, by their causes."""

    def count(self, seconds: float, error_type: str | None) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.seconds += seconds
        if error_type is not None and error_type not in NO_ERRORS:
            self.errors[error_type if error_type in self.errors or len(self.errors) < _MAX_FAILURES else OTHER] += 1


class OperationSeries:
    """Operations with one method, target and peer: their labels and the histogram of their durations.

    Made once and kept, so that recording an operation builds no labels.

    Attributes:
        method: The MCP method.
        target: The name of the called tool; None for none, or for an unknown one.
        peer: The other side.
        span_name: The name of a span of such an operation.
        labels: The labels of an operation that succeeds.
        is_call: True for ``tools/call``.
        chars: Length of the answers so far, if it is counted.
        usage: Calls of a team; None for other operations.
    """

    __slots__ = (
        "_failed", "_histogram", "chars", "is_call", "labels", "method", "peer", "span_name", "target", "usage",
    )  # fmt: skip

    def __init__(self, histogram: Histogram, method: str, target: str | None, peer: Peer) -> None:
        self.method, self.target, self.peer = method, target, peer
        self.is_call = method == TOOLS_CALL
        self.chars = 0
        self.usage = TeamUsage() if self.is_call and peer.team else None
        self.span_name = method if target is None else f"{method} {target}"
        labels: dict[str, str | int] = {METHOD: method, **peer.labels}
        if self.is_call:
            labels[OPERATION] = "execute_tool"
        if target is not None:
            labels[TARGETS.get(method, TARGETS[TOOLS_CALL])] = target
        self.labels = labels
        self._histogram = histogram
        self._failed: dict[tuple[str, int | None], Labels] = {}

    def record(self, seconds: float, error_type: str | None, code: int | None) -> None:
        """Record the duration of one operation. ``input_required`` is not a failure."""
        if self.usage is not None:
            self.usage.count(seconds, error_type)
        if error_type is None or error_type in NO_ERRORS:
            self._histogram.record(seconds, self.labels)
            return
        if (error_type, code) not in self._failed and len(self._failed) >= _MAX_FAILURES:
            error_type, code = OTHER, None
        labels = self._failed.get((error_type, code))
        if labels is None:
            labels = self._failed[error_type, code] = {**self.labels, **failure_labels(error_type, code)}
        self._histogram.record(seconds, labels)


def failure_labels(error_type: str, code: int | None) -> dict[str, str]:
    """The labels of a failure."""
    return {ERROR_TYPE: error_type} if code is None else {ERROR_TYPE: error_type, STATUS_CODE: str(code)}


class Instruments:
    """All instruments of this process.

    Args:
        provider: The meter provider; None to record nothing.

    Attributes:
        durations: The histograms of the conventions, by name.
        connected: Open connections, by upstream.
        connects: Connections so far, by upstream.
        reconnects: Connections after the first, by upstream.
        refusals: Refused HTTP requests, by status.
        lost_audit_lines: Lines missing in the audit log.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        from opentelemetry.metrics import NoOpMeterProvider  # noqa: PLC0415 - a server that is not observed has no use for it

        self._meter = meter = (provider or NoOpMeterProvider()).get_meter("bridge")
        self.durations = {name: self.histogram(name, "s", text, BUCKETS_SECONDS) for name, text in DESCRIPTIONS.items()}
        self.connected = meter.create_up_down_counter(
            CONNECTED, description="1 while there is a connection to the server, else 0."
        )
        self.connects = meter.create_counter(CONNECTS, description="Connections to the server so far.")
        self.reconnects = meter.create_counter(RECONNECTS, description="Connections to the server after the first.")
        self.refusals = meter.create_counter(REFUSALS, description="Refused HTTP requests, by status of the response.")
        self.lost_audit_lines = meter.create_counter(
            AUDIT_LOST, description="Lines of the audit log that were dropped because it could not be written."
        )
        self.lost_audit_lines.add(0)

    def histogram(self, name: str, unit: str, description: str, buckets: Sequence[float]) -> Histogram:
        """Create a histogram with these upper bounds of its buckets."""
        return self._meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

    def observe(self, name: str, description: str, value: Callable[[], int]) -> None:
        """Add a gauge, whose value is requested when metrics are collected."""
        self.observe_each(name, description, lambda: [(value(), {})])

    def observe_each(
        self, name: str, description: str, values: Callable[[], Iterable[tuple[int, Labels]]], *, is_total: bool = False
    ) -> None:
        """Add a gauge, or a counter if the values are totals, with a value for each of several labels."""
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - as above

        add = self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
        add(name, [lambda _: [Observation(value, labels) for value, labels in values()]], description=description)

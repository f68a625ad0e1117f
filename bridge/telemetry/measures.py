"""Measures: what is counted and timed while calls run, cheaply enough for every call.

A histogram here is a list of counts. What is known of an operation beforehand, its labels above all, is put together
once, in a `Series`; a call then costs a look-up, and its part of sorting the durations of a batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING

from bridge.telemetry.conventions import (
    BUCKETS_SECONDS,
    DESCRIPTIONS,
    ERROR_TYPE,
    INPUT_REQUIRED,
    METHOD,
    NETWORK_PROTOCOL,
    NETWORK_TRANSPORT,
    OPERATION,
    OTHER,
    PROTOCOL_VERSION,
    STATUS_CODE,
    TOOL,
    TOOLS_CALL,
    UPSTREAM,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Labels = Mapping[str, str | int]

MAX_SERIES = 2000
"""How many series a metric has at most, as in OpenTelemetry's SDK; what is beyond is counted under ``_OTHER``."""

_OF_TRANSPORT = {
    "stdio": {NETWORK_TRANSPORT: "pipe"},
    "memory": {NETWORK_TRANSPORT: "pipe"},
    "http": {NETWORK_TRANSPORT: "tcp", NETWORK_PROTOCOL: "http"},
    "sse": {NETWORK_TRANSPORT: "tcp", NETWORK_PROTOCOL: "http"},
}


@dataclass(frozen=True, slots=True)
class Peer:
    """The other side of a connection, as far as labels tell of it."""

    transport: str
    """``stdio``, ``http``, ``sse`` or ``memory``."""
    protocol_version: str
    """The revision of MCP that is spoken; empty where it is not known."""
    upstream: str | None = None
    """The configured name of the server; None where the other side is a client."""
    address: tuple[tuple[str, str | int], ...] = ()
    """Further labels that say where the server is."""

    @property
    def labels(self) -> dict[str, str | int]:
        """The labels."""
        labels: dict[str, str | int] = {**_OF_TRANSPORT.get(self.transport, {}), **dict(self.address)}
        if self.protocol_version:
            labels[PROTOCOL_VERSION] = self.protocol_version
        if self.upstream is not None:
            labels[UPSTREAM] = self.upstream
        return labels


class Histogram:
    """How often something took how long, for one set of labels.

    Attributes:
        labels: The labels.
        counts: How often, by `BUCKETS_SECONDS`, each bound included; the last is what took longer than all.
        total_seconds: How long in all.
    """

    __slots__ = ("counts", "labels", "total_seconds")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.total_seconds = 0.0

    def record(self, seconds: float) -> None:
        """Count once. No lock: each addition is whole in itself, whatever thread makes it."""
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.total_seconds += seconds

    def record_all(self, seconds: list[float]) -> None:
        """Count many at once, which costs a third of counting each; the list is sorted by that."""
        seconds.sort()
        counted = 0
        for bucket, bound in enumerate(BUCKETS_SECONDS):
            up_to_bound = bisect_right(seconds, bound)
            self.counts[bucket] += up_to_bound - counted
            counted = up_to_bound
        self.counts[-1] += len(seconds) - counted
        self.total_seconds += sum(seconds)


class Series:
    """What is known beforehand of operations of one kind: their labels, their span's name, and where they are counted.

    Attributes:
        method: MCP's method.
        target: The tool that is called; None for none, or none that is known.
        peer: The other side.
        span_name: What a span of such an operation is called.
        labels: The labels of an operation that succeeds.
        is_call: Whether a tool is called.
        succeeded: Where an operation that succeeds is counted.
    """

    __slots__ = ("_failed", "_metric", "is_call", "labels", "method", "peer", "span_name", "succeeded", "target")

    def __init__(self, metric: Metric, method: str, target: str | None, peer: Peer) -> None:
        self.method, self.target, self.peer = method, target, peer
        self.is_call = method == TOOLS_CALL
        self.span_name = method if target is None else f"{method} {target}"
        labels: dict[str, str | int] = {METHOD: method, **peer.labels}
        if self.is_call:
            labels[OPERATION] = "execute_tool"
        if target is not None:
            labels[TOOL] = target
        self.labels = labels
        self.succeeded = metric.histogram(labels)
        self._metric = metric
        self._failed: dict[tuple[str, int | None], Histogram] = {}

    def histogram(self, error_type: str | None, code: int | None) -> Histogram:
        """Where an operation is counted; one that asks its client something has not failed."""
        if error_type is None or error_type == INPUT_REQUIRED:
            return self.succeeded
        known = self._failed.get((error_type, code))
        if known is None:
            known = self._failed[error_type, code] = self._metric.histogram(
                {**self.labels, **failure_labels(error_type, code)}
            )
        return known


def failure_labels(error_type: str, code: int | None) -> dict[str, str]:
    """The labels of what failed."""
    return {ERROR_TYPE: error_type} if code is None else {ERROR_TYPE: error_type, STATUS_CODE: str(code)}


class Metric:
    """One of the conventions' histograms, by labels.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = DESCRIPTIONS[name]
        self._histograms: dict[frozenset[tuple[str, str | int]], Histogram] = {}

    def histogram(self, labels: Labels) -> Histogram:
        """The histogram of some labels."""
        key = frozenset(labels.items())
        known = self._histograms.get(key)
        if known is None:
            if len(self._histograms) >= MAX_SERIES:
                labels = {METHOD: OTHER}
                key = frozenset(labels.items())
            known = self._histograms.setdefault(key, Histogram(labels))
        return known

    def __iter__(self) -> Iterator[Histogram]:
        return iter(tuple(self._histograms.values()))


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that is looked up when somebody wants to know."""

    name: str
    description: str
    values: Callable[[], Iterable[tuple[float, Labels]]]
    """The values now, each with its labels."""
    is_counter: bool = False
    """It only grows."""


@dataclass(slots=True)
class Measures:
    """All that is counted in this process."""

    metrics: dict[str, Metric] = field(default_factory=lambda: {name: Metric(name) for name in DESCRIPTIONS})
    gauges: dict[str, Gauge] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Numbers by name, and by what they are about: an upstream, or a status."""
    lock: Lock = field(default_factory=Lock)
    """Held while something is counted: the loops of several threads may count at once."""
    started_at_ns: int = field(default_factory=time_ns)
    """Since when, in nanoseconds since 1970."""

    def watch(self, gauge: Gauge) -> None:
        """Have a number looked up; a later one of the same name takes the place of an earlier."""
        self.gauges[gauge.name] = gauge

    def add(self, name: str, amount: int = 1, about: str = "") -> None:
        """Count something that is rare."""
        with self.lock:
            self.counts.setdefault(name, Counter())[about] += amount

    def of(self, name: str) -> dict[str, int]:
        """What was counted under a name, by what it is about."""
        return dict(self.counts.get(name, {}))

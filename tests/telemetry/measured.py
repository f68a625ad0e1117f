"""Instruments whose measurements a test can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint

from bridge.telemetry.instruments import Instruments

if TYPE_CHECKING:
    from collections.abc import Iterator


class Measured:
    """Instruments, and their measurements."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.instruments = Instruments(self.provider)

    def counts(self, histogram: str) -> list[tuple[dict[str, Any], int]]:
        """Return the labels of each series of a histogram, and its count."""
        found = [(labels, point.count) for labels, point in self._points(histogram) if isinstance(point, Histogram)]
        return sorted(found, key=repr)

    def values(self, name: str, label: str = "bridge.upstream") -> dict[str, float]:
        """Return the values of a counter or gauge, by one of its labels."""
        return {
            str(labels.get(label, "")): point.value
            for labels, point in self._points(name)
            if isinstance(point, NumberDataPoint)
        }

    def points(self, histogram: str) -> list[HistogramDataPoint]:
        """Return the data points of a histogram."""
        return [point for _, point in self._points(histogram) if isinstance(point, Histogram)]

    def _points(self, name: str) -> Iterator[tuple[dict[str, Any], object]]:
        data = self._reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        yield from ((dict(point.attributes or {}), point) for point in metric.data.data_points)


Histogram = HistogramDataPoint

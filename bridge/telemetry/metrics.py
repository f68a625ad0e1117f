"""Metrics: what `Measures` counted, through OpenTelemetry's SDK to its Prometheus exporter.

The SDK looks numbers up (its observable instruments), but has no histogram that is looked up: those are put into what a
reader receives, as the SDK's own data points. Importing this imports OpenTelemetry's SDK.
"""

from __future__ import annotations

import math
from time import time_ns
from typing import TYPE_CHECKING, Any

from bridge.errors import MissingExtraError
from bridge.telemetry.conventions import BUCKETS_SECONDS

try:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Histogram,
        HistogramDataPoint,
        Metric,
        MetricsData,
        ResourceMetrics,
        ScopeMetrics,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from prometheus_client import CollectorRegistry, exposition
except ImportError as missing:
    raise MissingExtraError("metrics", "opentelemetry-exporter-prometheus", "otel") from missing

from bridge.telemetry.tracing import resource_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.metrics import CallbackOptions
    from opentelemetry.sdk.resources import Resource

    from bridge.telemetry.measures import Gauge, Measures
    from bridge.telemetry.observer import Observer

_SCOPE = InstrumentationScope("bridge")


class Metrics:
    """The metrics of this process, for Prometheus to fetch.

    Args:
        observer: Who counts. What is to be looked up has been entered with its measures (`Measures.watch`).
        service: What the service is called, unless the environment says it.
    """

    def __init__(self, observer: Observer, service: str) -> None:
        self._settle = observer.settle
        measures = observer.measures
        self._registry = CollectorRegistry()
        resource = resource_named(service)
        reader = _Reader(measures, resource, self._registry)
        self._provider = MeterProvider([reader], resource)
        meter = self._provider.get_meter(_SCOPE.name)
        for gauge in measures.gauges.values():
            if gauge.is_counter:
                meter.create_observable_counter(gauge.name, [_looks_up(gauge)], description=gauge.description)
            else:
                meter.create_observable_gauge(gauge.name, [_looks_up(gauge)], description=gauge.description)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as Prometheus reads them.

        It takes some milliseconds, which a server should spend in a worker thread.

        Args:
            accept: The ``Accept`` header of whoever asks; OpenMetrics where it asks for that.

        Returns:
            The text, and its media type.
        """
        self._settle()
        write, content_type = exposition.choose_encoder(accept)
        return write(self._registry), content_type

    def close(self) -> None:
        """Look nothing up any more."""
        self._provider.shutdown()


class _Reader(PrometheusMetricReader):
    """The exporter's reader, which receives our histograms beside what the SDK looked up."""

    def __init__(self, measures: Measures, resource: Resource, registry: CollectorRegistry) -> None:
        self._measures = measures
        self._resource = resource
        super().__init__(scope_info_enabled=False, registry=registry)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        """Receive: what the SDK asks of every reader."""
        histograms = list(_histograms(self._measures))
        ours = ResourceMetrics(self._resource, [ScopeMetrics(_SCOPE, histograms, "")], "")
        super()._receive_metrics(MetricsData([*metrics_data.resource_metrics, ours]), timeout_millis, **kwargs)


def _histograms(measures: Measures) -> Iterable[Metric]:
    now = time_ns()
    for metric in measures.metrics.values():
        points = []
        for histogram in metric:
            counts, total = tuple(histogram.counts), histogram.total_seconds
            if any(counts):
                points.append(
                    HistogramDataPoint(
                        attributes=dict(histogram.labels),
                        start_time_unix_nano=measures.started_at_ns,
                        time_unix_nano=now,
                        count=sum(counts),
                        sum=total,
                        bucket_counts=counts,
                        explicit_bounds=BUCKETS_SECONDS,
                        min=math.nan,  # not kept: Prometheus has no place for them
                        max=math.nan,
                    )
                )
        if points:
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
            yield Metric(metric.name, metric.description, "s", data)


def _looks_up(gauge: Gauge) -> Any:
    def look(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(labels)) for value, labels in gauge.values()]

    return look

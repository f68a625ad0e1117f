"""Prometheus metrics of this process, and of several processes as one text. Imports OpenTelemetry's SDK."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.errors import MissingExtraError

try:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
    from prometheus_client import CollectorRegistry, exposition
except ImportError as missing:
    raise MissingExtraError("metrics", "opentelemetry-exporter-prometheus", "otel") from missing

from bridge.telemetry.otel_setup import resource_named

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAMPLE = re.compile(r"(?P<name>[^\s{]+)(?:\{(?P<labels>.*)\})?(?P<value> [^{}]*)\Z")


class PrometheusMetrics:
    """The metrics of this process, in Prometheus' formats.

    Args:
        service: The service's name, unless the environment gives one (``OTEL_SERVICE_NAME``).

    Attributes:
        provider: The meter provider, for `bridge.telemetry.instruments.Instruments`.
    """

    def __init__(self, service: str) -> None:
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(scope_info_enabled=False, registry=self._registry)
        # Nothing reads exemplars, and sampling them costs each call.
        self.provider = MeterProvider([reader], resource_named(service), exemplar_filter=AlwaysOffExemplarFilter())

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Collect and encode all metrics. It takes some milliseconds: call it in a worker thread.

        Args:
            accept: The ``Accept`` header of the request; it may ask for OpenMetrics.

        Returns:
            The text and its media type.
        """
        encode, content_type = exposition.choose_encoder(accept)
        return encode(self._registry), content_type

    def close(self) -> None:
        """Shut the meter provider down."""
        self.provider.shutdown()


def merge_expositions(texts: Mapping[str, str], *, label: str) -> str:
    """Merge the metrics of several processes in Prometheus' text format, each with a label of its own.

    They are not summed: a process that restarts counts from 0 again, and Prometheus corrects for such a reset only
    within one series. The samples of a metric stand together, as the format requires.

    Args:
        texts: The metrics of each process, by the label's value.
        label: The label's name.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for value, text in texts.items():
        family = ""
        for line in text.split("\n"):  # not splitlines: a label may hold other line separators of Unicode
            if line.startswith("#"):
                family = line.split(" ", 3)[2] if line.startswith(("# HELP ", "# TYPE ")) else family
                comments, _ = families.setdefault(family, ([], []))
                if line not in comments:
                    comments.append(line)
            elif line:
                found = _SAMPLE.match(line)
                assert found is not None, line
                labels = ",".join(filter(None, (f'{label}="{value}"', found["labels"])))
                families.setdefault(family, ([], []))[1].append(f"{found['name']}{{{labels}}}{found['value']}")
    return "".join(f"{line}\n" for comments, samples in families.values() for line in (*comments, *samples))

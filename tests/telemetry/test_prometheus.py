from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from bridge.telemetry.conventions import BUCKETS_SECONDS
from bridge.telemetry.instruments import Instruments, Peer
from bridge.telemetry.observer import Observer
from bridge.telemetry.prometheus import PrometheusMetrics, merge_expositions

NAME = "mcp_server_operation_duration_seconds"
CLIENT = Peer("http", "2026-07-28")
ONE = """\
# HELP calls_total How many calls.
# TYPE calls_total counter
calls_total{tool="a b",where="{x}"} 3.0
# HELP open Whether it is.
# TYPE open gauge
open 1.0
"""
OTHER = """\
# HELP open Whether it is.
# TYPE open gauge
open 0.0
# HELP calls_total How many calls.
# TYPE calls_total counter
calls_total{tool="a b",where="{x}"} 4.0
calls_total{tool="quote\\"}"} 1.0
"""


def fetched(metrics: PrometheusMetrics) -> dict[tuple[str, str, str], float]:
    """Return the samples by name, tool and bucket."""
    text, content_type = metrics.text()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, sample.labels.get("gen_ai_tool_name", ""), sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def observed() -> tuple[PrometheusMetrics, Observer]:
    metrics = PrometheusMetrics("calc")
    return metrics, Observer(Instruments(metrics.provider))


def test_an_ended_call_is_in_the_next_response_in_the_buckets_of_the_conventions() -> None:
    metrics, observer = observed()
    series = observer.series("tools/call", "add", CLIENT)
    for _ in range(3):
        observer.serve(series, 1).end()
    samples = fetched(metrics)
    assert samples[f"{NAME}_count", "add", ""] == 3
    buckets = [float(bound) for name, tool, bound in samples if (name, tool) == (f"{NAME}_bucket", "add")]
    assert buckets == [*BUCKETS_SECONDS, float("inf")]
    metrics.close()


def test_counters_grow_and_gauges_have_the_current_value() -> None:
    metrics, observer = observed()
    is_draining = False
    observer.is_draining = lambda: is_draining
    observer.instruments.observe("bridge.children", "Children.", lambda: 2)
    series = observer.series("tools/call", "add", CLIENT)
    running = observer.serve(series, 1)
    first = fetched(metrics)
    assert (first["bridge_calls_in_flight", "", ""], first["bridge_draining", "", ""]) == (1, 0)
    assert (first["bridge_children", "", ""], first["bridge_audit_lost_total", "", ""]) == (2, 0)
    assert (f"{NAME}_count", "add", "") not in first
    running.end()
    observer.connected("github")
    is_draining = True
    second = fetched(metrics)
    assert (second["bridge_calls_in_flight", "", ""], second["bridge_draining", "", ""]) == (0, 1)
    assert second[f"{NAME}_count", "add", ""] == 1
    assert (second["bridge_upstream_connects_total", "", ""], second["bridge_upstream_connected", "", ""]) == (1, 1)
    metrics.close()


def test_openmetrics_is_written_on_request() -> None:
    metrics, observer = observed()
    observer.serve(observer.series("tools/list", None, CLIENT), 1).end()
    text, content_type = metrics.text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics_families(text.decode())  # type: ignore[no-untyped-call]  # the library has no types there
    assert NAME in {family.name for family in families}
    metrics.close()


def test_the_service_has_the_server_name() -> None:
    metrics, _ = observed()
    text, _ = metrics.text()
    assert 'service_name="calc"' in next(line for line in text.decode().splitlines() if line.startswith("target_info"))
    metrics.close()


def test_merged_series_of_several_processes_differ_by_a_label_and_stand_by_their_metric() -> None:
    text = merge_expositions({"1": ONE, "2": OTHER}, label="worker")
    read = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == {
        ("calls_total", ("tool", "a b"), ("where", "{x}"), ("worker", "1")): 3.0,
        ("calls_total", ("tool", "a b"), ("where", "{x}"), ("worker", "2")): 4.0,
        ("calls_total", ("tool", 'quote"}'), ("worker", "2")): 1.0,
        ("open", ("worker", "1")): 1.0,
        ("open", ("worker", "2")): 0.0,
    }
    assert text.count("# TYPE") == 2
    assert text.index("# TYPE open") > text.rindex("calls_total{")


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_line_separator_of_unicode_stays_within_its_label(end: str) -> None:
    metrics, observer = observed()
    observer.connected(f"git{end}hub")
    text = metrics.text()[0].decode()
    metrics.close()
    lines = merge_expositions({"1": text, "2": text}, label="worker").split("\n")
    for worker in ("1", "2"):
        assert f'bridge_upstream_connects_total{{worker="{worker}",bridge_upstream="git{end}hub"}} 1.0' in lines


def test_no_metrics_merge_to_an_empty_text() -> None:
    assert merge_expositions({"1": ""}, label="worker") == merge_expositions({}, label="worker") == ""

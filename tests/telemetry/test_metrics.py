from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from bridge.telemetry.conventions import BUCKETS_SECONDS
from bridge.telemetry.measures import Gauge, Peer
from bridge.telemetry.metrics import Metrics
from bridge.telemetry.observer import Observer

NAME = "mcp_server_operation_duration_seconds"
CLIENT = Peer("http", "2026-07-28")


def fetched(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    """The samples by name, tool and bucket."""
    text, content_type = metrics.text()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, sample.labels.get("gen_ai_tool_name", ""), sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_what_has_just_ended_is_in_what_is_fetched_in_the_buckets_of_the_conventions() -> None:
    observer = Observer()
    metrics = Metrics(observer, "calc")
    series = observer.series("tools/call", "add", CLIENT)
    for _ in range(3):
        observer.serve(series, 1).end()
    samples = fetched(metrics)
    assert samples[f"{NAME}_count", "add", ""] == 3
    buckets = [float(bound) for name, tool, bound in samples if (name, tool) == (f"{NAME}_bucket", "add")]
    assert buckets == [*BUCKETS_SECONDS, float("inf")]
    metrics.close()


def test_counts_grow_and_numbers_that_are_looked_up_are_those_of_now() -> None:
    observer = Observer()
    is_draining = False
    observer.is_draining = lambda: is_draining
    observer.measures.watch(Gauge("bridge.children", "Children.", lambda: [(2, {})]))
    metrics = Metrics(observer, "calc")
    series = observer.series("tools/call", "add", CLIENT)
    running = observer.serve(series, 1)
    first = fetched(metrics)
    assert (first["bridge_calls_in_flight", "", ""], first["bridge_draining", "", ""]) == (1, 0)
    assert first["bridge_children", "", ""] == 2
    assert (f"{NAME}_count", "add", "") not in first
    running.end()
    observer.connected("github")
    is_draining = True
    second = fetched(metrics)
    assert (second["bridge_calls_in_flight", "", ""], second["bridge_draining", "", ""]) == (0, 1)
    assert second[f"{NAME}_count", "add", ""] == 1
    assert second["bridge_upstream_connects_total", "", ""] == 1
    metrics.close()


def test_who_asks_for_openmetrics_gets_it() -> None:
    observer = Observer()
    metrics = Metrics(observer, "calc")
    observer.serve(observer.series("tools/list", None, CLIENT), 1).end()
    text, content_type = metrics.text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics_families(text.decode())  # type: ignore[no-untyped-call]  # the library has no types there
    assert NAME in {family.name for family in families}
    metrics.close()


def test_the_service_is_called_what_the_server_is_called() -> None:
    observer = Observer()
    metrics = Metrics(observer, "calc")
    text, _ = metrics.text()
    assert 'service_name="calc"' in next(line for line in text.decode().splitlines() if line.startswith("target_info"))
    metrics.close()

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.conventions import BUCKETS_SECONDS, SERVER_OPERATION_DURATION
from bridge.telemetry.measures import MAX_SERIES, Gauge, Histogram, Measures, Metric, Peer, Series


def test_a_bucket_holds_what_took_at_most_as_long_as_it_says() -> None:
    histogram = Histogram({})
    for seconds in (0.0, 0.01, 0.011, 300.0, 301.0):
        histogram.record(seconds)
    counts = dict(zip((*BUCKETS_SECONDS, float("inf")), histogram.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {0.01: 2, 0.02: 1, 300.0: 1, float("inf"): 1}
    assert histogram.total_seconds == 601.021


@given(st.lists(st.sampled_from(BUCKETS_SECONDS) | st.floats(0.0, 400.0)))
def test_many_that_are_counted_at_once_are_counted_as_each_alone(seconds: list[float]) -> None:
    alone, together = Histogram({}), Histogram({})
    for each in seconds:
        alone.record(each)
        together.record(each / 2)
        alone.record(each / 2)
    together.record_all(seconds)
    assert together.counts == alone.counts
    assert together.total_seconds == pytest.approx(alone.total_seconds)


def test_the_labels_of_a_call_are_those_of_the_conventions() -> None:
    series = Series(Metric(SERVER_OPERATION_DURATION), "tools/call", "add", Peer("http", "2026-07-28"))
    labels = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "mcp.protocol.version": "2026-07-28",
    }
    assert series.histogram(None, None).labels == labels
    assert series.histogram("tool_error", None).labels == labels | {"error.type": "tool_error"}
    failure = {"error.type": "-32602", "rpc.response.status_code": "-32602"}
    assert series.histogram("-32602", -32602).labels == labels | failure
    assert series.span_name == "tools/call add"


def test_over_stdio_the_network_is_a_pipe_and_a_version_that_is_not_known_is_not_said() -> None:
    assert Peer("stdio", "").labels == {"network.transport": "pipe"}


def test_two_series_of_the_same_labels_are_one_histogram() -> None:
    metric, peer = Metric(SERVER_OPERATION_DURATION), Peer("stdio", "")
    one, other = Series(metric, "ping", None, peer), Series(metric, "ping", None, peer)
    assert one.succeeded is other.succeeded


def test_beyond_the_limit_of_series_everything_is_counted_as_one() -> None:
    metric = Metric(SERVER_OPERATION_DURATION)
    for number in range(MAX_SERIES):
        metric.histogram({"gen_ai.tool.name": f"tool{number}"})
    beyond = [metric.histogram({"gen_ai.tool.name": name}) for name in ("one", "another")]
    assert beyond[0] is beyond[1]
    assert beyond[0].labels == {"mcp.method.name": "_OTHER"}
    assert metric.histogram({"gen_ai.tool.name": "tool7"}).labels == {"gen_ai.tool.name": "tool7"}


def test_a_gauge_of_a_name_takes_the_place_of_the_one_before() -> None:
    measures = Measures()
    for value in (1.0, 2.0):
        measures.watch(Gauge("bridge.children", "", lambda value=value: [(value, {})]))  # type: ignore[misc]  # its default binds it
    assert [list(gauge.values()) for gauge in measures.gauges.values()] == [[(2.0, {})]]

from __future__ import annotations

from bridge.telemetry.conventions import BUCKETS_SECONDS, SERVER_OPERATION_DURATION
from bridge.telemetry.instruments import Instruments, OperationSeries, Peer
from tests.telemetry.measured import Measured


def series_of(measured: Measured, peer: Peer, method: str = "tools/call", tool: str | None = "add") -> OperationSeries:
    return OperationSeries(measured.instruments.durations[SERVER_OPERATION_DURATION], method, tool, peer)


def test_durations_are_sorted_into_the_buckets_of_the_conventions() -> None:
    measured = Measured()
    series = series_of(measured, Peer("stdio", ""))
    for seconds in (0.0, 0.01, 0.011, 300.0, 301.0):
        series.record(seconds, None, None)
    (point,) = measured.points(SERVER_OPERATION_DURATION)
    assert tuple(point.explicit_bounds) == BUCKETS_SECONDS
    counts = dict(zip((*BUCKETS_SECONDS, float("inf")), point.bucket_counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {0.01: 2, 0.02: 1, 300.0: 1, float("inf"): 1}
    assert point.sum == 601.021


def test_the_labels_of_a_call_are_those_of_the_conventions() -> None:
    measured = Measured()
    series = series_of(measured, Peer("http", "2026-07-28"))
    labels = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "mcp.protocol.version": "2026-07-28",
    }
    failure = {"error.type": "-32602", "rpc.response.status_code": "-32602"}
    for error_type, code in ((None, None), ("tool_error", None), ("-32602", -32602), ("-32602", -32602)):
        series.record(0.1, error_type, code)
    expected = [(labels, 1), (labels | {"error.type": "tool_error"}, 1), (labels | failure, 2)]
    assert measured.counts(SERVER_OPERATION_DURATION) == sorted(expected, key=repr)
    assert series.span_name == "tools/call add"


def test_error_codes_that_a_server_invents_do_not_grow_the_labels_without_end() -> None:
    measured = Measured()
    series = series_of(measured, Peer("stdio", ""))
    for code in (*range(150), 0):
        series.record(0.1, str(code), code)
    counts = [(labels.get("error.type"), count) for labels, count in measured.counts(SERVER_OPERATION_DURATION)]
    assert sorted(counts) == sorted([("_OTHER", 50), ("0", 2), *((str(code), 1) for code in range(1, 100))])


def test_a_call_that_asks_its_client_is_not_a_failure() -> None:
    measured = Measured()
    series = series_of(measured, Peer("http", "2026-07-28"))
    series.record(0.1, "input_required", None)
    assert measured.counts(SERVER_OPERATION_DURATION) == [(dict(series.labels), 1)]


def test_over_stdio_the_network_is_a_pipe_and_an_unknown_version_has_no_label() -> None:
    assert Peer("stdio", "").labels == {"network.transport": "pipe"}


def test_two_series_of_the_same_labels_are_counted_together() -> None:
    measured, peer = Measured(), Peer("stdio", "")
    for _ in range(2):
        series_of(measured, peer, "ping", None).record(0.1, None, None)
    assert [count for _, count in measured.counts(SERVER_OPERATION_DURATION)] == [2]


def test_the_series_of_a_metric_are_bounded() -> None:
    measured, peer = Measured(), Peer("stdio", "")
    for number in range(3000):
        series_of(measured, peer, tool=f"tool{number}").record(0.1, None, None)
    counts = measured.counts(SERVER_OPERATION_DURATION)
    assert len(counts) <= 2001
    assert ({"otel.metric.overflow": True}, 3000 - 2000) in counts


def test_a_gauge_is_read_when_metrics_are_collected() -> None:
    measured, values = Measured(), iter((1, 2))
    measured.instruments.observe("bridge.children", "Children.", lambda: next(values))
    assert [measured.values("bridge.children") for _ in range(2)] == [{"": 1}, {"": 2}]


def test_without_a_provider_nothing_is_recorded_and_nothing_fails() -> None:
    instruments = Instruments()
    instruments.refusals.add(1)
    instruments.durations[SERVER_OPERATION_DURATION].record(1.0)

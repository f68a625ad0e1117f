from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridge.telemetry.exposition import joined
from bridge.telemetry.metrics import Metrics
from bridge.telemetry.observer import Observer

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


def test_series_of_several_processes_are_told_apart_and_stand_by_their_metric() -> None:
    text = joined({"1": ONE, "2": OTHER}, label="worker")
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
def test_what_ends_a_line_elsewhere_stands_within_a_label(end: str) -> None:
    observer = Observer()
    metrics = Metrics(observer, "gateway")
    observer.connected(f"git{end}hub")
    text = metrics.text()[0].decode()
    metrics.close()
    lines = joined({"1": text, "2": text}, label="worker").split("\n")
    for worker in ("1", "2"):
        assert f'bridge_upstream_connects_total{{worker="{worker}",bridge_upstream="git{end}hub"}} 1.0' in lines


def test_nothing_counted_is_no_text() -> None:
    assert joined({"1": ""}, label="worker") == joined({}, label="worker") == ""

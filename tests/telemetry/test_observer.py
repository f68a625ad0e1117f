from __future__ import annotations

import json
from errno import ENOSPC
from http import HTTPStatus
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from bridge.telemetry import switch
from bridge.telemetry import writer as writing
from bridge.telemetry.conventions import (
    AUDIT_LOST,
    CLIENT_OPERATION_DURATION,
    CLIENT_SESSION_DURATION,
    SERVER_OPERATION_DURATION,
    SERVER_SESSION_DURATION,
)
from bridge.telemetry.measures import Peer
from bridge.telemetry.observer import Observer
from bridge.telemetry.records import RECORD_END, audit_gap
from bridge.telemetry.sinks import AuditLog
from bridge.telemetry.writer import Writer

if TYPE_CHECKING:
    from bridge.telemetry.measures import Labels
    from bridge.telemetry.records import Records

DEADLINE_SECONDS = 10
CLIENT = Peer("http", "2026-07-28")
SERVER = Peer("stdio", "2025-11-25", "github")


class Kept:
    """A sink that keeps what it takes."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.took = Event()

    def put(self, records: Records) -> None:
        self.lines += [json.loads(line + RECORD_END) for line in records.lines]
        self.took.set()


def counted(observer: Observer, metric: str) -> list[tuple[int, Labels]]:
    observer.settle()
    return [(sum(each.counts), each.labels) for each in observer.measures.metrics[metric] if sum(each.counts)]


def gauge(observer: Observer, name: str) -> list[tuple[float, Labels]]:
    return list(observer.measures.gauges[name].values())


def value(observer: Observer, name: str) -> dict[str, float]:
    return {str(labels.get("bridge.upstream", "")): value for value, labels in gauge(observer, name)}


def test_a_call_is_in_flight_until_it_ends_and_is_counted_then() -> None:
    observer = Observer()
    series = observer.series("tools/call", "add", CLIENT)
    calls = [observer.serve(series, number) for number in range(2)]
    assert (value(observer, "bridge.calls.in_flight"), counted(observer, SERVER_OPERATION_DURATION)) == ({"": 2}, [])
    for call in calls:
        call.end()
    assert value(observer, "bridge.calls.in_flight") == {"": 0}
    assert counted(observer, SERVER_OPERATION_DURATION) == [(2, series.labels)]


def test_other_requests_are_counted_and_are_no_calls_in_flight() -> None:
    observer = Observer()
    request = observer.serve(observer.series("tools/list", None, CLIENT), 1)
    assert value(observer, "bridge.calls.in_flight") == {"": 0}
    request.end_with_code(-32602, "no such page")
    ((count, labels),) = counted(observer, SERVER_OPERATION_DURATION)
    assert (count, labels["error.type"], labels["rpc.response.status_code"]) == (1, "-32602", "-32602")


def test_a_method_that_anybody_made_up_has_no_series_of_its_own() -> None:
    observer = Observer()
    assert observer.series("x/1", None, CLIENT) is observer.series("x/2", None, CLIENT)
    assert observer.series("x/1", None, CLIENT).method == "_OTHER"


@pytest.mark.parametrize(
    ("result", "error_type"),
    [
        ({"isError": True}, "tool_error"),
        ({"isError": False}, None),
        ({"resultType": "input_required"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_result_that_says_that_the_tool_failed_is_a_failure(result: object, error_type: str | None) -> None:
    observer = Observer()
    observer.serve(observer.series("tools/call", "add", CLIENT), 1).end_with_result(result)
    ((_, labels),) = counted(observer, SERVER_OPERATION_DURATION)
    assert labels.get("error.type") == error_type


def test_what_ends_reaches_the_sinks_without_anybody_asking() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink])
    series = observer.series("tools/call", "add", CLIENT)
    words = observer.words(series, "add", "github", "alice", {"a": 1, "b": 2})
    observer.serve(series, 7, None, None, words).end_cancelled()
    assert sink.took.wait(DEADLINE_SECONDS)
    (line,) = sink.lines
    assert (line.pop("time"), line.pop("duration_ms")) is not None
    assert line == {
        "event": "call",
        "request_id": 7,
        "tool": "add",
        "server": "github",
        "caller": "alice",
        "transport": "http",
        "outcome": "cancelled",
        "error": "cancelled",
        "arguments": {"a": "[redacted]", "b": "[redacted]"},
    }
    observer.close()


def test_arguments_are_recorded_as_they_came_where_that_is_asked_for() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink], shows_arguments=True)
    arguments: dict[str, Any] = {"path": "/a", "lines": [1]}
    series = observer.series("tools/call", "read", CLIENT)
    words = observer.words(series, "read", None, None, arguments)
    arguments["lines"].append(2)  # as a tool may
    observer.serve(series, 1, None, None, words).end()
    observer.close()
    assert sink.lines[0]["arguments"] == {"path": "/a", "lines": [1]}


def test_of_what_callers_invent_no_more_is_kept_than_is_recorded() -> None:
    observer = Observer(sinks=[Kept()])
    sent = {f"{number}{'x' * 10_000}": 1 for number in range(100)}
    words = observer.words(observer.series("tools/call", None, CLIENT), "y" * 10_000, None, None, sent)
    assert words is not None
    call, _, arguments = words
    told = json.loads(f'{{"request_id":1{call}0{arguments}}}')
    assert told["tool"] == "y" * 128 + "…"
    assert [len(name) for name in told["arguments"]] == [64 + 1] * 32


def test_records_keep_the_order_in_which_calls_ended() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink])
    series = observer.series("tools/call", "add", CLIENT)
    for number in range(1000):
        observer.serve(series, number, None, None, observer.words(series, "add", None, None, {})).end()
    observer.close()
    assert [line["request_id"] for line in sink.lines] == list(range(1000))


def test_what_an_audit_log_loses_is_counted_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A disk that has no room."""

        def write(self, lines: bytes) -> None:
            raise OSError(ENOSPC, "No space left on device")

        def close(self) -> None:
            """There is nothing to close."""

    monkeypatch.setattr(writing, "MAX_WAITING", 10)
    observer = Observer()
    writer = Writer("audit log", Full(), audit_gap, lambda count: observer.measures.add(AUDIT_LOST, count))
    observer.sinks = (AuditLog(writer),)
    series = observer.series("tools/call", "add", CLIENT)
    for number in range(1000):
        observer.serve(series, number, None, None, observer.words(series, "add", None, None, {})).end()
    settling = Thread(target=observer.close, daemon=True)
    settling.start()
    settling.join(DEADLINE_SECONDS)
    assert not settling.is_alive()
    assert 0 < observer.measures.of(AUDIT_LOST)[""] < 1000
    writer.close()


def test_without_sinks_nothing_is_kept_of_a_call() -> None:
    observer = Observer()
    assert observer.words(observer.series("tools/call", "add", CLIENT), "add", None, None, {"a": 1}) is None


def test_what_a_server_is_asked_is_counted_with_its_failures() -> None:
    observer = Observer()
    with observer.asking("tools/call", "add", SERVER) as asking:
        asking.answered({"isError": True})
    with pytest.raises(KeyError), observer.asking("tools/list", None, SERVER):
        raise KeyError
    failures = {
        labels["mcp.method.name"]: labels["error.type"] for _, labels in counted(observer, CLIENT_OPERATION_DURATION)
    }
    assert failures == {"tools/call": "tool_error", "tools/list": "KeyError"}
    assert all(labels["bridge.upstream"] == "github" for _, labels in counted(observer, CLIENT_OPERATION_DURATION))


def test_connections_to_servers_are_counted_and_so_are_those_after_the_first() -> None:
    observer = Observer()
    observer.connected("github")
    observer.disconnected(SERVER, 2.0, "ServerUnavailableError")
    observer.connected("github")
    observer.connected("files")
    assert value(observer, "bridge.upstream.connects") == {"github": 2, "files": 1}
    assert value(observer, "bridge.upstream.reconnects") == {"github": 1, "files": 0}
    assert value(observer, "bridge.upstream.connected") == {"github": 1, "files": 1}
    ((count, labels),) = counted(observer, CLIENT_SESSION_DURATION)
    assert (count, labels["error.type"], labels["bridge.upstream"]) == (1, "ServerUnavailableError", "github")


def test_what_is_refused_over_http_is_counted_by_status() -> None:
    observer = Observer()
    for status in (401, 429, HTTPStatus.UNAUTHORIZED):
        observer.refused(status)
    found = {labels["http.response.status_code"]: count for count, labels in gauge(observer, "bridge.http.refusals")}
    assert found == {"401": 2, "429": 1}


def test_sessions_are_open_as_long_as_they_last() -> None:
    observer = Observer()
    with observer.session(Peer("stdio", "")):
        assert value(observer, "bridge.sessions") == {"": 1}
    assert value(observer, "bridge.sessions") == {"": 0}
    assert counted(observer, SERVER_SESSION_DURATION) == [(1, {"network.transport": "pipe"})]


def test_a_message_that_comes_twice_is_known_the_second_time_and_no_more() -> None:
    observer = Observer()
    observer.will_be_replayed(1, "initialize")
    assert not observer.is_replay(1, "ping")
    assert observer.is_replay(1, "initialize")
    assert not observer.is_replay(1, "initialize")


def test_nothing_is_observed_until_it_is_switched_on_and_after_that_what_was_before() -> None:
    assert switch.observer() is None
    outer, inner = Observer(), Observer()
    with switch.switched_on(outer):
        with switch.switched_on(inner):
            assert switch.observer() is inner
        assert switch.observer() is outer
    assert switch.observer() is None

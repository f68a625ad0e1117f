from __future__ import annotations

import json
import re
from errno import ENOSPC
from http import HTTPStatus
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from bridge.telemetry import current
from bridge.telemetry import writer as writing
from bridge.telemetry.conventions import (
    AUDIT_LOST,
    CLIENT_OPERATION_DURATION,
    CLIENT_SESSION_DURATION,
    SERVER_OPERATION_DURATION,
    SERVER_SESSION_DURATION,
)
from bridge.telemetry.instruments import Peer
from bridge.telemetry.observer import Observer
from bridge.telemetry.operations import BATCH_SIZE, error_type_of
from bridge.telemetry.records import AuditLog, Redaction, audit_gap_line
from bridge.telemetry.writer import BackgroundWriter
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.telemetry.records import CallRecord

DEADLINE_SECONDS = 60
CLIENT = Peer("http", "2026-07-28")
SERVER = Peer("stdio", "2025-11-25", "github")


class Kept:
    """A sink that keeps the records, and flushes pending ones when it is read."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self.batches: list[int] = []

    def put(self, records: Sequence[CallRecord]) -> None:
        self.batches.append(len(records))
        self._records += [json.loads(record.line) for record in records]

    def wake(self, flush: Callable[[], object]) -> None:
        self._flush = flush

    @property
    def records(self) -> list[dict[str, Any]]:
        self._flush()
        return self._records


@pytest.fixture
def measured() -> Measured:
    return Measured()


@pytest.fixture
def observer(measured: Measured) -> Observer:
    return Observer(measured.instruments)


def test_a_call_is_in_flight_until_it_ends_and_is_counted_then(measured: Measured, observer: Observer) -> None:
    series = observer.series("tools/call", "add", CLIENT)
    calls = [observer.serve(series, number) for number in range(2)]
    assert (measured.values("bridge.calls.in_flight"), measured.counts(SERVER_OPERATION_DURATION)) == ({"": 2}, [])
    for call in calls:
        call.end()
    assert measured.values("bridge.calls.in_flight") == {"": 0}
    assert measured.counts(SERVER_OPERATION_DURATION) == [(series.labels, 2)]


def test_other_requests_are_counted_and_are_no_calls_in_flight(measured: Measured, observer: Observer) -> None:
    request = observer.serve(observer.series("tools/list", None, CLIENT), 1)
    assert measured.values("bridge.calls.in_flight") == {"": 0}
    request.end_with_code(-32602, "no such page")
    ((labels, count),) = measured.counts(SERVER_OPERATION_DURATION)
    assert (count, labels["error.type"], labels["rpc.response.status_code"]) == (1, "-32602", "-32602")


def test_an_unknown_method_has_no_series_of_its_own(observer: Observer) -> None:
    assert observer.series("x/1", None, CLIENT) is observer.series("x/2", None, CLIENT)
    assert observer.series("x/1", None, CLIENT).method == "_OTHER"


@pytest.mark.parametrize(
    ("result", "error_type"),
    [
        ({"isError": True}, "tool_error"),
        ({"isError": False}, None),
        ({"isError": True, "_meta": {"io.github.mcp-toolbridge/retryAfterSeconds": 1}}, "refused"),
        ({"resultType": "input_required"}, None),
        ({}, None),
    ],
)
def test_a_result_that_says_that_the_tool_failed_is_a_failure(
    result: dict[str, Any], error_type: str | None, measured: Measured, observer: Observer
) -> None:
    observer.serve(observer.series("tools/call", "add", CLIENT), 1).end(error_type_of(result))
    ((labels, _),) = measured.counts(SERVER_OPERATION_DURATION)
    assert labels.get("error.type") == error_type


@pytest.mark.parametrize("end", ["a result", "an error"])
def test_a_refused_call_has_one_outcome_whether_it_is_answered_by_a_result_or_by_an_error(
    end: str, measured: Measured
) -> None:
    sink = Kept()
    observer = Observer(measured.instruments, sinks=[sink])
    series = observer.series("tools/call", "add", CLIENT)
    operation = observer.serve(series, 1, None, None, observer.call_details("add", None, None, "http", {}))
    if end == "an error":
        operation.end_with_code(-32005, "too many calls")
    else:
        operation.end(error_type_of({"isError": True, "_meta": {"io.github.mcp-toolbridge/retryAfterSeconds": 1}}))
    ((labels, _),) = measured.counts(SERVER_OPERATION_DURATION)
    assert labels["error.type"] == "refused"
    assert [(record["outcome"], record["error"]) for record in sink.records] == [("refused", "refused")]


def test_the_record_of_an_ended_call_reaches_the_sinks() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink])
    series = observer.series("tools/call", "add", CLIENT)
    details = observer.call_details("add", "github", "alice", "http", {"a": 1, "b": 2}, client="editor")
    observer.serve(series, 7, None, None, details).end_cancelled()
    (record,) = sink.records
    assert (record.pop("time"), record.pop("duration_ms")) is not None
    assert len(record.pop("request_id")) == 24
    assert record == {
        "event": "call",
        "client_request_id": 7,
        "tool": "add",
        "server": "github",
        "caller": "alice",
        "client": "editor",
        "transport": "http",
        "result_bytes": 0,
        "outcome": "cancelled",
        "error": "cancelled",
        "arguments": {"a": "[redacted]", "b": "[redacted]"},
    }


def test_arguments_are_recorded_as_they_came_where_that_is_asked_for() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink], shows_arguments=True)
    arguments: dict[str, Any] = {"path": "/a", "lines": [1]}
    details = observer.call_details("read", None, None, "http", arguments)
    arguments["lines"].append(2)  # as a tool may
    observer.serve(observer.series("tools/call", "read", CLIENT), 1, None, None, details).end()
    assert sink.records[0]["arguments"] == {"path": "/a", "lines": [1]}


def test_records_keep_the_order_in_which_calls_ended() -> None:
    sink = Kept()
    observer = Observer(sinks=[sink])
    series = observer.series("tools/call", "add", CLIENT)
    for number in range(1000):
        observer.serve(series, number, None, None, observer.call_details("add", None, None, "http", {})).end()
    assert [record["client_request_id"] for record in sink.records] == list(range(1000))
    assert len({record["request_id"] for record in sink.records}) == 1000
    assert set(sink.batches) == {BATCH_SIZE, 1000 % BATCH_SIZE}


def test_lost_audit_lines_are_counted_while_calls_go_on(
    measured: Measured, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Event()

    class Full:
        """A full disk."""

        def write(self, lines: bytes) -> None:
            tried.set()
            raise OSError(ENOSPC, "No space left on device")

        def close(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(writing, "MAX_WAITING", 10)
    lost = measured.instruments.lost_audit_lines
    writer = BackgroundWriter("audit log", Full(), audit_gap_line, lost.add)
    observer.sinks = (AuditLog(writer),)
    series = observer.series("tools/call", "add", CLIENT)
    for number in range(1000):
        observer.serve(series, number, None, None, observer.call_details("add", None, None, "http", {})).end()
    assert tried.wait(DEADLINE_SECONDS)
    assert 0 < measured.values(AUDIT_LOST)[""] < 1000
    writer.close()


def test_without_sinks_a_call_has_no_record() -> None:
    assert Observer().call_details("add", None, None, "http", {"a": 1}) is None


def test_requests_to_a_server_are_counted_with_their_failures(measured: Measured, observer: Observer) -> None:
    with observer.asking("tools/call", "add", SERVER) as asking:
        asking.answered({"isError": True})
    with pytest.raises(KeyError), observer.asking("tools/list", None, SERVER):
        raise KeyError
    counts = measured.counts(CLIENT_OPERATION_DURATION)
    failures = {labels["mcp.method.name"]: labels["error.type"] for labels, _ in counts}
    assert failures == {"tools/call": "tool_error", "tools/list": "KeyError"}
    assert all(labels["bridge.upstream"] == "github" for labels, _ in counts)


def test_connections_to_servers_are_counted_and_so_are_those_after_the_first(
    measured: Measured, observer: Observer
) -> None:
    observer.connected("github")
    observer.disconnected(SERVER, 2.0, "ServerUnavailableError")
    observer.connected("github")
    observer.connected("files")
    observer.upstream_added("never")
    assert measured.values("bridge.upstream.connects") == {"github": 2, "files": 1, "never": 0}
    assert measured.values("bridge.upstream.reconnects") == {"github": 1, "files": 0, "never": 0}
    assert measured.values("bridge.upstream.connected") == {"github": 1, "files": 1, "never": 0}
    ((labels, count),) = measured.counts(CLIENT_SESSION_DURATION)
    assert (count, labels["error.type"], labels["bridge.upstream"]) == (1, "ServerUnavailableError", "github")


def test_refused_http_requests_are_counted_by_status(measured: Measured, observer: Observer) -> None:
    for status in (401, 429, HTTPStatus.UNAUTHORIZED):
        observer.refused(status, b"{}")
    assert measured.values("bridge.http.refusals", "http.response.status_code") == {"401": 2, "429": 1}


def test_sessions_are_open_as_long_as_they_last(measured: Measured, observer: Observer) -> None:
    with observer.session(Peer("stdio", "")):
        assert measured.values("bridge.sessions") == {"": 1}
    assert measured.values("bridge.sessions") == {"": 0}
    assert measured.counts(SERVER_SESSION_DURATION) == [({"network.transport": "pipe"}, 1)]


def test_telemetry_is_disabled_until_it_is_enabled_and_after_the_block() -> None:
    assert current.observer() is None
    outer, inner = Observer(), Observer()
    with current.enabled(outer):
        with current.enabled(inner):
            assert current.observer() is inner
        assert current.observer() is outer
    assert current.observer() is None


def test_the_teams_of_labels_are_bounded() -> None:
    observer = Observer()
    assert {observer.team(f"team-{number}") for number in range(150)} == {
        *(f"team-{number}" for number in range(100)),
        "_OTHER",
    }
    assert (observer.team(""), observer.team("team-7"), observer.team("new")) == ("", "team-7", "_OTHER")


def test_arguments_are_redacted_before_they_are_recorded() -> None:
    observer = Observer(sinks=[Kept()], shows_arguments=True, redaction=Redaction([re.compile("secret-[0-9]+")]))
    given = {"text": "say secret-1", "secret-2": [True]}
    details = observer.call_details("say", None, None, "http", given)
    assert details is not None
    assert json.loads(details.arguments) == {"text": "say [redacted]", "[redacted]": [True]}
    assert given == {"text": "say secret-1", "secret-2": [True]}

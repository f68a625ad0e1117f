from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.conventions import SERVER_OPERATION_DURATION
from bridge.telemetry.measures import Metric, Peer, Series
from bridge.telemetry.records import (
    MAX_ARGUMENTS_BYTES,
    CallRecord,
    arguments_seen,
    audit_gap,
    caller_seen,
    id_seen,
    log_gap,
    log_line,
    records_of,
    tool_seen,
)
from bridge.telemetry.texts import abridged

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def record(
    *,
    called: str | None = "add",
    server: str | None = None,
    caller: str | None = None,
    request_id: object = 7,
    error_type: str | None = None,
    arguments: tuple[str, ...] | bytes = ("a",),
    trace_id: str | None = None,
) -> CallRecord:
    """The record of a call that ended a quarter of a second after it began."""
    series = Series(Metric(SERVER_OPERATION_DURATION), "tools/call", "add", Peer("stdio", ""))
    told = request_id, called, server, caller, arguments, trace_id
    (made,) = records_of([(series, 0.5, 0.75, error_type, None, told)], now=1_790_000_000.0)
    return made


def test_a_record_says_when_the_call_began_who_called_what_and_what_came_of_it() -> None:
    assert json.loads(record(caller="alice", trace_id="4b", error_type="tool_error").line) == {
        "time": "2026-09-21T14:13:20.500Z",
        "event": "call",
        "request_id": 7,
        "tool": "add",
        "server": None,
        "caller": "alice",
        "transport": "stdio",
        "duration_ms": 250.0,
        "outcome": "tool_error",
        "error": "tool_error",
        "trace_id": "4b",
        "arguments": {"a": "[redacted]"},
    }


def test_of_what_is_no_call_there_is_no_record() -> None:
    series = Series(Metric(SERVER_OPERATION_DURATION), "tools/list", None, Peer("stdio", ""))
    assert records_of([(series, 0.0, 1.0, None, None, None)], now=0.0) == []


def test_the_log_says_how_severe_it_is_as_well() -> None:
    kinds = (None, "tool_error", "cancelled", "-32602", "ValueError")
    levels = {kind: json.loads(log_line(record(error_type=kind)))["level"] for kind in kinds}
    assert levels == {
        None: "info",
        "tool_error": "warning",
        "cancelled": "warning",
        "-32602": "error",
        "ValueError": "error",
    }


@given(TEXT, TEXT, st.none() | TEXT, st.one_of(st.integers(), TEXT), st.lists(TEXT, unique=True))
def test_whatever_a_client_sends_a_record_is_one_line_of_json(
    called: str, server: str, caller: str | None, request_id: int | str, names: list[str]
) -> None:
    each = record(
        called=tool_seen(called),
        server=server,
        caller=caller,
        request_id=request_id,
        arguments=arguments_seen(dict.fromkeys(names), shown=False),
    )
    for line in (each.line, log_line(each)):
        assert "\n" not in line
        said = json.loads(line)
        assert (said["tool"], said["server"], said["caller"], said["request_id"]) == (
            abridged(called, 128),
            server,
            caller,
            request_id,
        )


def test_what_a_client_or_an_issuer_chose_is_cut_with_a_mark() -> None:
    assert id_seen("x" * 256) == "x" * 256
    assert id_seen("x" * 257) == caller_seen("x" * 300) == "x" * 256 + "…"
    assert id_seen(-(2**62)) == -(2**62)
    assert id_seen(10**4000) == "1" + "0" * 255 + "…"
    assert tool_seen("x" * 128) == "x" * 128
    assert tool_seen("x" * 129) == "x" * 128 + "…"
    assert (id_seen(None), tool_seen(None), caller_seen(None)) == (None, None, None)


@pytest.mark.parametrize(
    "nasty", ["\n", "\r\n", "\x00", "\x1b[2J", "\x7f", "\x85", "\x9b2J", "\u2028", "\u2029", '"}', "\\"]
)
def test_nothing_in_a_record_ends_its_line_or_is_obeyed_by_a_terminal(nasty: str) -> None:
    text = f'a{nasty}{{"event":"call"}}'
    seen = (arguments_seen({text: text}, shown=shown) for shown in (False, True))
    for arguments in seen:
        line = record(called=text, server=text, caller=text, request_id=text, error_type=text, arguments=arguments).line
        assert len(line.splitlines()) == 1
        assert all(each.isprintable() for each in line)
        said = json.loads(line)
        assert said["event"] == "call"
        assert {said["tool"], said["server"], said["caller"], said["request_id"], said["error"]} == {text}
        assert list(said["arguments"]) == [text]


def test_half_a_character_is_recorded_and_costs_no_other_record() -> None:
    half = "\ud800"
    for arguments in (arguments_seen({half: half}, shown=shown) for shown in (False, True)):
        line = record(called=half, caller=half, request_id=half, arguments=arguments).line
        said = json.loads(line)
        assert (said["tool"], said["caller"], said["request_id"], *said["arguments"]) == (half, half, half, half)
        assert line.isascii()


def test_of_very_many_or_very_long_names_of_arguments_some_are_recorded() -> None:
    sent = {f"{number}{'x' * 100}": 1 for number in range(100)}
    said = json.loads(record(arguments=arguments_seen(sent, shown=False)).line)["arguments"]
    assert len(said) == 32
    assert {(len(name), name[-1]) for name in said} == {(64 + 1, "…")}


def test_arguments_that_are_too_long_are_told_by_their_length() -> None:
    seen = arguments_seen({"text": "x" * MAX_ARGUMENTS_BYTES}, shown=True)
    assert json.loads(seen) == "16395 bytes, more than are recorded"  # type: ignore[arg-type]  # they are bytes where shown


def test_a_gap_says_how_many_calls_are_missing() -> None:
    audit, log = json.loads(audit_gap(3)), json.loads(log_gap(3))
    assert (audit["event"], audit["calls"]) == (log["event"], log["calls"]) == ("lost", 3)
    assert log["level"] == "error"

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.conventions import SERVER_OPERATION_DURATION
from bridge.telemetry.measures import Metric, Peer, Series
from bridge.telemetry.records import (
    MAX_ARGUMENTS_BYTES,
    MAX_KINDS,
    RECORD_END,
    KnownWords,
    Words,
    arguments_seen,
    audit_gap,
    caller_seen,
    id_seen,
    log_end,
    log_gap,
    records_of,
    tool_seen,
    words_with_arguments,
)
from bridge.telemetry.texts import abridged

if TYPE_CHECKING:
    from bridge.telemetry.operations import Ended

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
SERIES = Series(Metric(SERVER_OPERATION_DURATION), "tools/call", "add", Peer("stdio", ""))
ADD = KnownWords()["add", None, None, "stdio", ("a",)]


def line_of(
    words: Words = ADD, *, request_id: object = 7, error_type: str | None = None, trace_id: str | None = None
) -> str:
    """The line of a call that ended a quarter of a second after it began, but for its end."""
    records = records_of([(SERIES, 0.5, 0.75, error_type, None, words, request_id, trace_id)], now=1_790_000_000.0)
    assert records.failures == ({} if error_type is None else {0: error_type})
    (line,) = records.lines
    return line


def said(words: Words = ADD, **told: Any) -> dict[str, Any]:
    """What such a line says."""
    read: dict[str, Any] = json.loads(line_of(words, **told) + RECORD_END)
    return read


def test_a_record_says_when_the_call_began_who_called_what_and_what_came_of_it() -> None:
    words = KnownWords()["add", None, "alice", "stdio", ("a",)]
    assert said(words, trace_id="4b", error_type="tool_error") == {
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


def test_each_record_says_its_own_time_and_duration() -> None:
    began = (0.0, 0.0004, 0.001, 59.9999)
    ended = [(SERIES, start, start + 0.000_017 * (start + 1), None, None, ADD, 1, None) for start in began]
    told = [json.loads(line + RECORD_END) for line in records_of(ended, now=1_790_000_000.0).lines]
    assert [(each["time"], each["duration_ms"]) for each in told] == [
        ("2026-09-21T14:13:20.000Z", 0.017),
        ("2026-09-21T14:13:20.000Z", 0.017),
        ("2026-09-21T14:13:20.001Z", 0.017),
        ("2026-09-21T14:14:19.999Z", 1.037),
    ]


def test_of_what_is_no_call_there_is_no_record() -> None:
    series = Series(Metric(SERVER_OPERATION_DURATION), "tools/list", None, Peer("stdio", ""))
    assert records_of([(series, 0.0, 1.0, None, None, None, None, None)], now=0.0) == ([], {})


def test_failures_are_known_by_the_index_of_their_line() -> None:
    outcomes = ("no call", None, "cancelled", None, "-32602")
    ended: list[Ended] = [
        (SERIES, 0.0, 1.0, None if each == "no call" else each, None, None if each == "no call" else ADD, 1, None)
        for each in outcomes
    ]
    records = records_of(ended, now=0.0)
    assert (len(records.lines), records.failures) == (4, {1: "cancelled", 3: "-32602"})


def test_the_log_says_how_severe_it_is_as_well() -> None:
    kinds = (None, "input_required", "tool_error", "cancelled", "-32602", "ValueError")
    levels = {kind: json.loads(line_of(error_type=kind) + log_end(kind))["level"] for kind in kinds}
    assert levels == {
        None: "info",
        "input_required": "info",
        "tool_error": "warning",
        "cancelled": "warning",
        "-32602": "error",
        "ValueError": "error",
    }


@given(TEXT, TEXT, st.none() | TEXT, st.one_of(st.integers(), TEXT), st.lists(TEXT, unique=True))
def test_whatever_a_client_sends_a_record_is_one_line_of_json(
    called: str, server: str, caller: str | None, request_id: int | str, names: list[str]
) -> None:
    line = line_of(KnownWords()[called, server, caller, "stdio", tuple(names)], request_id=request_id)
    for whole in (line + RECORD_END, line + log_end(None)):
        assert "\n" not in whole
        told = json.loads(whole)
        assert (told["tool"], told["server"], told["caller"], told["request_id"]) == (
            abridged(called, 128),
            server,
            caller,
            id_seen(request_id),
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
    redacted = KnownWords()[text, text, text, "http", (text,)]
    for words in (redacted, words_with_arguments(text, text, text, "http", {text: text})):
        line = line_of(words, request_id=text, error_type=text) + RECORD_END
        assert len(line.splitlines()) == 1
        assert all(each.isprintable() for each in line)
        told = json.loads(line)
        assert told["event"] == "call"
        assert {told["tool"], told["server"], told["caller"], told["request_id"], told["error"]} == {text}
        assert list(told["arguments"]) == [text]


def test_half_a_character_is_recorded_and_costs_no_other_record() -> None:
    half = "\ud800"
    redacted = KnownWords()[half, None, half, "http", (half,)]
    for words in (redacted, words_with_arguments(half, None, half, "http", {half: half})):
        told = said(words, request_id=half)
        assert (told["tool"], told["caller"], told["request_id"], *told["arguments"]) == (half, half, half, half)
        assert line_of(words, request_id=half).isascii()


def test_of_very_many_or_very_long_names_of_arguments_some_are_recorded() -> None:
    sent = tuple(f"{number}{'x' * 100}" for number in range(100))
    told = said(KnownWords()["add", None, None, "http", sent])["arguments"]
    assert len(told) == 32
    assert {(len(name), name[-1]) for name in told} == {(64 + 1, "…")}


def test_the_words_for_a_kind_of_call_are_found_once() -> None:
    known = KnownWords()
    kind = ("add", "files", "alice", "http", ("a", "b"))
    assert known[kind] is known[kind]
    others = [("add", "files", "bob", "http", ("a", "b")), ("add", "files", "bob", "http", ("b", "a"))]
    assert len({known[each] for each in (kind, *others, ("add", "files", "bob", "sse", ("b", "a")))}) == 4


def test_of_the_kinds_that_callers_invent_some_are_kept_and_nothing_long() -> None:
    known = KnownWords()
    for number in range(2 * MAX_KINDS):
        long = f"{number}{'x' * 10_000}"
        assert known[long, None, long, "http", (long,) * 100] == known[long, None, long, "http", (long,) * 100]
        assert 0 < len(known) <= MAX_KINDS
    for called, _, caller, _, names in known:
        assert (len(called or ""), len(caller or ""), len(names), len(names[0])) == (129, 257, 32, 65)


def test_arguments_that_are_too_long_are_told_by_their_length() -> None:
    seen = arguments_seen({"text": "x" * MAX_ARGUMENTS_BYTES})
    assert json.loads(seen) == "16395 bytes, more than are recorded"


def test_a_gap_says_how_many_calls_are_missing() -> None:
    audit, log = json.loads(audit_gap(3)), json.loads(log_gap(3))
    assert (audit["event"], audit["calls"]) == (log["event"], log["calls"]) == ("lost", 3)
    assert log["level"] == "error"

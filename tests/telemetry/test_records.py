from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.telemetry.records import (
    MAX_ARGUMENTS_BYTES,
    AuditLog,
    CallDetails,
    CallLog,
    EndedCall,
    Redaction,
    SampledCalls,
    audit_gap_line,
    call_record,
    log_gap_line,
    recorded_arguments,
    recorded_id,
    recorded_names,
)
from bridge.telemetry.writer import BackgroundWriter
from bridge.text import clip

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
ADD = CallDetails("add", None, None, "stdio", recorded_names(["a"]))


def ended(
    details: CallDetails = ADD,
    *,
    request_id: object = 7,
    error_type: str | None = None,
    trace_id: str | None = None,
    started_at: float = 1_790_000_000.5,
    duration_seconds: float = 0.25,
) -> EndedCall:
    return EndedCall(details, "of-our-own", started_at, duration_seconds, error_type, trace_id, request_id)


def read(call: EndedCall) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(call_record(call).line)
    return record


class Output:
    """Keeps the written text."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def write(self, lines: bytes) -> None:
        self.lines += map(json.loads, lines.splitlines())

    def close(self) -> None:
        """Do nothing."""


def test_a_record_has_the_start_the_caller_the_tool_and_the_outcome() -> None:
    details = CallDetails("add", None, "alice", "stdio", recorded_names(["a"]), client="editor")
    assert read(ended(details, trace_id="4b", error_type="tool_error")) == {
        "time": "2026-09-21T14:13:20.500Z",
        "event": "call",
        "request_id": "of-our-own",
        "client_request_id": 7,
        "tool": "add",
        "server": None,
        "caller": "alice",
        "client": "editor",
        "transport": "stdio",
        "duration_ms": 250.0,
        "result_bytes": 0,
        "outcome": "tool_error",
        "error": "tool_error",
        "trace_id": "4b",
        "arguments": {"a": "[redacted]"},
    }


def test_each_record_has_its_own_start_and_duration() -> None:
    starts = (0.0, 0.0004, 0.001, 59.9999)
    records = [
        read(ended(started_at=1_790_000_000.0 + start, duration_seconds=0.000_017 * (start + 1))) for start in starts
    ]
    assert [(record["time"], record["duration_ms"]) for record in records] == [
        ("2026-09-21T14:13:20.000Z", 0.017),
        ("2026-09-21T14:13:20.000Z", 0.017),
        ("2026-09-21T14:13:20.001Z", 0.017),
        ("2026-09-21T14:14:19.999Z", 1.037),
    ]


def test_the_log_has_a_level_in_each_line_and_the_audit_log_none() -> None:
    log, audit = Output(), Output()
    writers = [BackgroundWriter("log", log, str), BackgroundWriter("audit log", audit, str)]
    levels = {
        None: "info",
        "input_required": "info",
        "tool_error": "warning",
        "cancelled": "warning",
        "-32602": "error",
        "ValueError": "error",
    }
    records = [call_record(ended(error_type=error_type)) for error_type in levels]
    CallLog(writers[0]).put(records)
    AuditLog(writers[1]).put(records)
    for writer in writers:
        writer.close()
    assert audit.lines == [json.loads(record.line) for record in records]
    assert log.lines == [
        line | {"level": level, "logger": "bridge.calls"}
        for line, level in zip(audit.lines, levels.values(), strict=True)
    ]


@given(TEXT, TEXT, st.none() | TEXT, st.one_of(st.integers(), TEXT), st.lists(TEXT, unique=True))
def test_any_client_text_gives_one_line_of_json(
    called: str, server: str, caller: str | None, request_id: int | str, names: list[str]
) -> None:
    details = CallDetails(called, server, caller, "stdio", recorded_names(names))
    line = call_record(ended(details, request_id=request_id)).line
    assert "\n" not in line
    record = json.loads(line)
    assert (record["tool"], record["server"], record["caller"], record["client_request_id"]) == (
        clip(called, 128),
        server,
        caller and clip(caller),
        recorded_id(request_id),
    )


def test_text_of_a_client_or_an_issuer_is_cut_with_a_mark() -> None:
    assert recorded_id("x" * 256) == "x" * 256
    assert recorded_id("x" * 257) == "x" * 256 + "…"
    assert recorded_id(-(2**62)) == -(2**62)
    assert recorded_id(10**4000) == "1" + "0" * 255 + "…"
    assert recorded_id(None) is None
    record = read(ended(CallDetails("x" * 129, None, "x" * 300, "http", "{}")))
    assert (record["tool"], record["caller"]) == ("x" * 128 + "…", "x" * 256 + "…")


@pytest.mark.parametrize(
    "nasty", ["\n", "\r\n", "\x00", "\x1b[2J", "\x7f", "\x85", "\x9b2J", "\u2028", "\u2029", '"}', "\\"]
)
def test_nothing_in_a_record_ends_its_line_or_controls_a_terminal(nasty: str) -> None:
    text = f'a{nasty}{{"event":"call"}}'
    for arguments in (recorded_names([text]), recorded_arguments({text: text})):
        details = CallDetails(text, text, text, "http", arguments)
        line = call_record(ended(details, request_id=text, error_type=text)).line
        assert len(line.splitlines()) == 1
        assert all(each.isprintable() for each in line)
        record: dict[str, Any] = json.loads(line)
        assert record["event"] == "call"
        assert {record["tool"], record["server"], record["caller"], record["client_request_id"], record["error"]} == {
            text
        }
        assert list(record["arguments"]) == [text]


def test_a_lone_surrogate_is_recorded_escaped() -> None:
    half = "\ud800"
    for arguments in (recorded_names([half]), recorded_arguments({half: half})):
        line = call_record(ended(CallDetails(half, None, half, "http", arguments), request_id=half)).line
        record = json.loads(line)
        assert (record["tool"], record["caller"], record["client_request_id"], *record["arguments"]) == (half,) * 4
        assert line.isascii()


def test_argument_names_are_bounded_in_number_and_length() -> None:
    names = json.loads(recorded_names(f"{number}{'x' * 100}" for number in range(100)))
    assert len(names) == 32
    assert {(len(name), name[-1]) for name in names} == {(64 + 1, "…")}


def test_arguments_over_the_limit_are_recorded_by_their_size() -> None:
    assert recorded_arguments({"text": "x" * MAX_ARGUMENTS_BYTES}) == '"16395 bytes, more than are recorded"'


def test_a_gap_line_has_the_number_of_missing_calls() -> None:
    audit, log = json.loads(audit_gap_line(3)), json.loads(log_gap_line(3))
    assert (audit["event"], audit["calls"]) == (log["event"], log["calls"]) == ("lost", 3)
    assert log["level"] == "error"


def test_sampling_keeps_a_part_of_the_successes_and_all_failures() -> None:
    output = Output()
    writer = BackgroundWriter("log", output, log_gap_line)
    sink = SampledCalls(AuditLog(writer), 0.25)
    ok, failed = call_record(ended()), call_record(ended(error_type="tool_error"))
    for _ in range(100):
        sink.put([ok, failed])
    writer.close()
    outcomes = [line["outcome"] for line in output.lines]
    assert (outcomes.count("ok"), outcomes.count("tool_error")) == (25, 100)


def test_a_ratio_of_zero_keeps_failures_alone() -> None:
    output = Output()
    writer = BackgroundWriter("log", output, log_gap_line)
    SampledCalls(AuditLog(writer), 0).put([call_record(ended()), call_record(ended(error_type="cancelled"))])
    writer.close()
    assert [line["outcome"] for line in output.lines] == ["cancelled"]


def test_patterns_are_redacted_in_all_texts_of_clients() -> None:
    redaction = Redaction([re.compile(r"\b\d{4}-\d{4}\b"), re.compile("[a-z]+@example\\.com")])
    arguments = {"to": ["ada@example.com", {"card": "no 1234-5678"}], "ada@example.com": 1, "n": 1234}
    details = CallDetails(
        "mail://ada@example.com", None, "ada", "http", recorded_names([]), "resource", "ada@example.com"
    )
    record = json.loads(call_record(ended(details, request_id="1234-5678"), redaction).line)
    assert redaction.value(arguments) == {
        "to": ["[redacted]", {"card": "no [redacted]"}],
        "[redacted]": 1,
        "n": 1234,
    }
    assert (record["resource"], record["client"], record["client_request_id"]) == (
        "mail://[redacted]",
        "[redacted]",
        "[redacted]",
    )

"""Records of calls, reads and rendered prompts: one JSON object each, for the call log and the audit log."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bridge.telemetry.conventions import CANCELLED, INPUT_REQUIRED, NO_ERRORS, REFUSED, TASK, TOOL_ERROR
from bridge.text import clip, to_json_line, utc_time

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bridge.telemetry.writer import BackgroundWriter

REDACTED = "[redacted]"
"""Stands for the value of an argument."""
MAX_NAMES = 32
"""Maximum recorded argument names of a call; clients may send any number."""
MAX_NAME_CHARS = 64
"""Maximum recorded characters of an argument's name."""
MAX_TARGET_CHARS = {"tool": 128, "resource": 1024, "prompt": 128}
"""Maximum recorded characters of the name or URI; a tool's name is not longer."""
MAX_PARENT_CHARS = 64
"""Maximum recorded characters of the id that another server has made."""
MAX_ARGUMENTS_BYTES = 16 * 1024
"""Maximum recorded bytes of the arguments' values."""
MAX_ID = 2**63
"""Bound below which a numeric request id is recorded as a number; larger ones are recorded as text."""

_EVENTS = {"tool": "call", "resource": "read", "prompt": "render", "task": "task"}
_OUTCOMES = {None: "ok"} | {each: each for each in (TOOL_ERROR, REFUSED, CANCELLED, *NO_ERRORS)}
_LEVELS = {
    "ok": "info",
    INPUT_REQUIRED: "info",
    TASK: "info",
    TOOL_ERROR: "warning",
    REFUSED: "warning",
    CANCELLED: "warning",
    "error": "error",
}
_LOG_ENDS = {outcome: f',"level":"{level}","logger":"bridge.calls"}}' for outcome, level in _LEVELS.items()}
"""Ends of log lines, by the outcome of the call."""


class CallDetails(NamedTuple):
    """The part of a call's record that is known before the call runs."""

    target: str | None
    """The called name, which may be that of no tool; or the URI, or the name of a prompt."""
    server: str | None
    """The upstream server of the tool; None for a local tool."""
    caller: str | None
    """The caller's name; None where callers are not authenticated."""
    transport: str | None
    """The transport of the client; None for a task."""
    arguments: str
    """The arguments in JSON: `recorded_names` or `recorded_arguments`."""
    noun: str = "tool"
    """``tool`` for a call, ``task`` for the end of one, ``resource`` for a read, ``prompt`` for a rendered prompt."""
    client: str | None = None
    """Name of the client program, which it chooses itself; None if it is unknown."""
    grant: str | None = None
    """Way by which the caller has a credential of its own for the upstream server; None if all have the same."""
    team: str = ""
    """The caller's team; empty for none."""
    parent_request_id: str | None = None
    """The id that another server has made for the call that this one serves; None for none."""


class EndedCall(NamedTuple):
    """A call that has ended."""

    details: CallDetails
    request_id: str
    """An id of this process, or of a task."""
    started_at: float
    """The start, in seconds since 1970."""
    duration_seconds: float
    error_type: str | None
    """The type of the error, or ``input_required``; None for a success."""
    trace_id: str | None
    client_request_id: object = None
    """The id that the client chose, which it may use again; None for a task."""
    result_bytes: int = 0
    """Length of the result as JSON; 0 for an error of the protocol."""


class CallRecord(NamedTuple):
    """The record of a call, which all sinks share."""

    outcome: str
    """``ok``, ``input_required``, ``task``, ``tool_error``, ``refused``, ``cancelled`` or ``error``."""
    line: str
    """An object in JSON, in one line."""
    summary: str
    """The same without the arguments."""


class Redaction:
    """Replaces what matches patterns in texts.

    Args:
        patterns: Regular expressions.
    """

    def __init__(self, patterns: Iterable[re.Pattern[str]]) -> None:
        self._patterns = tuple(patterns)

    def text(self, text: str) -> str:
        """Return a text with `REDACTED` for each match."""
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
        return text

    def value(self, value: Any) -> Any:
        """Return JSON data with redacted texts, also in names of members."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self.value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        return value


NO_REDACTION = Redaction(())
"""Changes nothing."""


class CallSink(Protocol):
    """Receives the records of calls. It must not block."""

    def put(self, records: Sequence[CallRecord]) -> None:
        """Receive records."""

    def wake(self, flush: Callable[[], object]) -> None:
        """Call a function soon, from another thread: there are records to put."""


class AuditLog:
    """Call records as audit lines."""

    def __init__(self, writer: BackgroundWriter) -> None:
        self._writer = writer
        self.wake = writer.wake

    def put(self, records: Sequence[CallRecord]) -> None:
        """Write records."""
        self._writer.put([record.line for record in records])


class CallLog(AuditLog):
    """Call records as log lines: each has a level and a logger's name."""

    def put(self, records: Sequence[CallRecord]) -> None:
        """Write records."""
        self._writer.put([f"{record.line[:-1]}{_LOG_ENDS[record.outcome]}" for record in records])


class SampledCalls:
    """Passes on a part of the records of calls that succeeded, evenly spread, and those of all others.

    Args:
        sink: Receives them.
        ratio: The part, from 0.0 to 1.0.
    """

    def __init__(self, sink: CallSink, ratio: float) -> None:
        self._sink = sink
        self._ratio = ratio
        self._owed = 1.0 if ratio else 0.0
        self.wake = sink.wake

    def put(self, records: Sequence[CallRecord]) -> None:
        """Pass records on."""
        self._sink.put([each for each in records if self._is_kept(each)])

    def _is_kept(self, record: CallRecord) -> bool:
        if record.outcome != "ok" or record.line == record.summary:  # an action of an operator has no arguments
            return True
        is_kept = self._owed >= 1.0
        self._owed += self._ratio - is_kept
        return is_kept


def call_record(call: EndedCall, redaction: Redaction = NO_REDACTION) -> CallRecord:
    """The record of a call."""
    name, server, caller, transport, arguments, noun, client, grant, team, parent_request_id = call.details
    outcome = _OUTCOMES.get(call.error_type, "error")
    target = "tool" if noun == "task" else noun
    record = {
        "time": utc_time(call.started_at),
        "event": _EVENTS[noun],
        "request_id": call.request_id,
        "client_request_id": redaction.value(recorded_id(call.client_request_id)),
        target: name and redaction.text(clip(name, MAX_TARGET_CHARS[target])),
        "server": server,
        "caller": caller and clip(caller),
        "client": client and redaction.text(clip(client)),
        "transport": transport,
        "duration_ms": round(call.duration_seconds * 1_000_000) / 1000,
        "result_bytes": call.result_bytes,
        "outcome": outcome,
    }
    if team:
        record["team"] = clip(team)
    if parent_request_id is not None:
        record["parent_request_id"] = parent_request_id
    if grant is not None:
        record["grant"] = grant
    if outcome != "ok" and outcome not in NO_ERRORS:
        record["error"] = call.error_type
    if call.trace_id is not None:
        record["trace_id"] = call.trace_id
    summary = to_json_line(record)
    return CallRecord(outcome, f'{summary[:-1]},"arguments":{arguments}}}', summary)


def action_record(action: str, target: str | None, caller: str | None, error: str | None) -> CallRecord:
    """The record of an action of an operator; ``error`` is None if it was done."""
    outcome = "ok" if error is None else "error"
    record = {
        "time": utc_time(time()),
        "event": "admin",
        "action": action,
        "target": target and clip(target),
        "caller": caller and clip(caller),
        "outcome": outcome,
    }
    if error is not None:
        record["error"] = clip(error)
    line = to_json_line(record)
    return CallRecord(outcome, line, line)


def recorded_id(request_id: object) -> object:
    """A client's request id within bounds: it may choose any text, and an integer of any length."""
    if type(request_id) is int and -MAX_ID < request_id < MAX_ID:
        return request_id
    return None if request_id is None else clip(str(request_id))


def recorded_names(arguments: Iterable[str]) -> str:
    """The names of arguments within bounds, each with `REDACTED` for its value, in JSON."""
    return _redacted(tuple([clip(name, MAX_NAME_CHARS) for name in islice(arguments, MAX_NAMES)]))


@lru_cache
def _redacted(names: tuple[str, ...]) -> str:
    return to_json_line(dict.fromkeys(names, REDACTED))


def recorded_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments in JSON, or a text with their size where they exceed `MAX_ARGUMENTS_BYTES`."""
    line = to_json_line(arguments)
    length = len(line.encode())
    return line if length <= MAX_ARGUMENTS_BYTES else f'"{length} bytes, more than are recorded"'


def audit_gap_line(count: int) -> str:
    """The audit line that stands for missing records."""
    return to_json_line({"time": utc_time(time()), "event": "lost", "calls": count})


def log_gap_line(count: int) -> str:
    """The log line that stands for missing records."""
    return f"{audit_gap_line(count)[:-1]}{_LOG_ENDS['error']}"

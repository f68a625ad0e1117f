"""Records: what is written down of a call, as JSON.

A line is put together from pieces, most of which are the same for many calls: as a whole, written by a JSON library, it
would cost more than counting, timing and tracing the call.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from bridge.telemetry.conventions import CANCELLED, TOOL_ERROR
from bridge.telemetry.texts import abridged, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.telemetry.operations import Ended

REDACTED = "[redacted]"
"""What stands for the value of an argument."""
MAX_NAMES = 32
"""How many names of arguments are recorded at most: anybody may send any."""
MAX_NAME_CHARS = 64
"""How much of such a name is recorded."""
MAX_TOOL_CHARS = 128
"""How much of the name that was called is recorded: what a tool's name may have."""
MAX_ARGUMENTS_BYTES = 16 * 1024
"""How much of the arguments is recorded, where they are."""

_MAX_ID = 2**63
_OUTCOMES = {None: "ok", TOOL_ERROR: TOOL_ERROR, CANCELLED: CANCELLED}
_LEVELS = {"ok": "info", "error": "error"}
_AT_INFO = ',"level":"info","logger":"bridge.calls"}'


class CallRecord(NamedTuple):
    """One call of a tool, and what came of it, written down."""

    error_type: str | None
    """What went wrong, in a word; None where nothing did."""
    line: str
    """The record as one line of JSON, without its end."""

    @property
    def level(self) -> str:
        """How severe it is."""
        return _LEVELS.get(outcome_of(self.error_type), "warning")


def outcome_of(error_type: str | None) -> str:
    """What came of a call, in a word: ``ok``, ``tool_error``, ``cancelled`` or ``error``."""
    return _OUTCOMES.get(error_type, "error")


def id_seen(request_id: object) -> object:
    """What a record keeps of the id of a request: a client may choose any text, and a number of any length."""
    if type(request_id) is int and -_MAX_ID < request_id < _MAX_ID:
        return request_id
    return None if request_id is None else abridged(str(request_id))


def tool_seen(called: str | None) -> str | None:
    """What a record keeps of the name that was called: anybody may call any."""
    return called and abridged(called, MAX_TOOL_CHARS)


def caller_seen(caller: str | None) -> str | None:
    """What a record keeps of who calls: an issuer chose the name."""
    return caller and abridged(caller)


def arguments_seen(arguments: Mapping[str, Any], *, shown: bool) -> tuple[str, ...] | bytes:
    """What a record keeps of the arguments of a call; what waits and what is cached has bounds by it.

    Args:
        arguments: The arguments.
        shown: Whether their values are to be recorded.
    """
    if not shown:
        return tuple([abridged(name, MAX_NAME_CHARS) for name in islice(arguments, MAX_NAMES)])
    shown_as = written(arguments).encode()
    if len(shown_as) > MAX_ARGUMENTS_BYTES:
        return written(f"{len(shown_as)} bytes, more than are recorded").encode()
    return shown_as


def records_of(ended: Iterable[Ended], now: float) -> list[CallRecord]:
    """The records of what has ended, in its order; of what is no call there is none.

    Args:
        ended: What has ended, by `time.perf_counter`.
        now: How many seconds since 1970 were over when that was 0.
    """
    records = []
    for series, start, end, error_type, _, told in ended:
        if told is None:
            continue
        request_id, called, server, caller, arguments, trace_id = told
        said = request_id if type(request_id) is int else written(request_id)
        outcome = '"ok"' if error_type is None else _failure(error_type)
        trace = "" if trace_id is None else f',"trace_id":"{trace_id}"'
        shown = _redacted(arguments) if type(arguments) is tuple else bytes(arguments).decode()  # type: ignore[arg-type]  # not narrowed by `is`
        line = (
            f'{{{_time(start + now)},"event":"call","request_id":{said},'
            f"{_who_and_what(called, server, caller, series.peer.transport)},"
            f'"duration_ms":{(end - start) * 1000:.3f},"outcome":{outcome}{trace},"arguments":{shown}}}'
        )
        records.append(CallRecord(error_type, line))
    return records


def log_line(record: CallRecord) -> str:
    """A record as a line of the log, without its end."""
    if record.error_type is None:
        return record.line[:-1] + _AT_INFO
    return f'{record.line[:-1]},"level":"{record.level}","logger":"bridge.calls"}}'


def audit_gap(count: int) -> str:
    """What says in the audit log how many records are missing."""
    return f'{{{_time(time())},"event":"lost","calls":{count}}}'


def log_gap(count: int) -> str:
    """What says in the log how many records are missing."""
    return f'{{{_time(time())},"level":"error","logger":"bridge.calls","event":"lost","calls":{count}}}'


@lru_cache(256)
def _failure(error_type: str) -> str:
    return f'"{outcome_of(error_type)}","error":{written(error_type)}'


@lru_cache(1024)
def _who_and_what(called: str | None, server: str | None, caller: str | None, transport: str) -> str:
    return written({"tool": called, "server": server, "caller": caller, "transport": transport})[1:-1]


@lru_cache(1024)
def _redacted(names: tuple[str, ...]) -> str:
    return written(dict.fromkeys(names, REDACTED))


def _time(seconds: float) -> str:
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f'"time":"{_second(whole)}.{milliseconds:03d}Z"'


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

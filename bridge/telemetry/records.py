"""Records: what is written down of a call, as JSON.

A line is put together from pieces, most of which are the same for many calls: as a whole, written by a JSON library, it
would cost more than counting, timing and tracing the call.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

from bridge.telemetry.conventions import CANCELLED, TOOL_ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_OUTCOMES = {None: "ok", TOOL_ERROR: TOOL_ERROR, CANCELLED: CANCELLED}
_LEVELS = {"ok": "info", "error": "error"}


class CallRecord(NamedTuple):
    """One call of a tool, and what came of it."""

    ended_at: float
    """In seconds since 1970."""
    request_id: object
    """The request's id, as the client chose it."""
    called: str | None
    """The name that was called; of a tool, unless the outcome is an error."""
    server: str | None
    """The server behind this one that has the tool; None where it is here."""
    caller: str | None
    """Who called; None where nobody had to say."""
    transport: str
    """How the call came: ``stdio``, ``http`` or ``sse``."""
    seconds: float
    """How long it took."""
    error_type: str | None
    """What went wrong, in a word; None where nothing did."""
    arguments: tuple[str, ...] | bytes
    """The names of the arguments, or all of them as JSON."""
    trace_id: str | None
    """The trace to which it belongs, in hexadecimal digits; None without one."""

    @property
    def outcome(self) -> str:
        """What came of it, in a word: ``ok``, ``tool_error``, ``cancelled`` or ``error``."""
        return _OUTCOMES.get(self.error_type, "error")

    @property
    def level(self) -> str:
        """How severe that is."""
        return _LEVELS.get(self.outcome, "warning")


def arguments_seen(arguments: Mapping[str, Any], *, shown: bool) -> tuple[str, ...] | bytes:
    """What a record keeps of the arguments of a call.

    Args:
        arguments: The arguments.
        shown: Whether their values are to be recorded.
    """
    if not shown:
        return tuple(arguments)
    written = to_json(arguments, fallback=repr, inf_nan_mode="null")
    if len(written) > MAX_ARGUMENTS_BYTES:
        return to_json(f"{len(written)} bytes, more than are recorded")
    return written


def log_line(record: CallRecord, line: str) -> str:
    """A record as a line of the log.

    Args:
        record: The record.
        line: What `record_as_json` made of it.
    """
    level = "info" if record.error_type is None else record.level
    return f'{line[:-1]},"level":"{level}","logger":"bridge.calls"}}'


def audit_gap(count: int) -> str:
    """What says in the audit log how many records are missing."""
    return f'{{{_time(time())},"event":"lost","calls":{count}}}'


def log_gap(count: int) -> str:
    """What says in the log how many records are missing."""
    return f'{{{_time(time())},"level":"error","logger":"bridge.calls","event":"lost","calls":{count}}}'


def record_as_json(record: CallRecord) -> str:
    """A record as a line of the audit log, without its end."""
    request_id, arguments, error_type = record.request_id, record.arguments, record.error_type
    told = _who_and_what(record.called, record.server, record.caller, record.transport)
    shown = arguments.decode() if type(arguments) is bytes else _redacted(arguments)
    said = request_id if type(request_id) is int else to_json(request_id, fallback=repr).decode()
    outcome = '"ok"' if error_type is None else f'"{record.outcome}","error":{to_json(error_type).decode()}'
    trace = "" if record.trace_id is None else f',"trace_id":"{record.trace_id}"'
    return (
        f'{{{_time(record.ended_at - record.seconds)},"event":"call","request_id":{said},{told},'
        f'"duration_ms":{record.seconds * 1000:.3f},"outcome":{outcome}{trace},"arguments":{shown}}}'
    )


@lru_cache(1024)
def _who_and_what(called: str | None, server: str | None, caller: str | None, transport: str) -> str:
    name = called and called[:MAX_TOOL_CHARS]
    return to_json({"tool": name, "server": server, "caller": caller, "transport": transport})[1:-1].decode()


@lru_cache(1024)
def _redacted(names: tuple[str, ...]) -> str:
    return to_json({name[:MAX_NAME_CHARS]: REDACTED for name in names[:MAX_NAMES]}).decode()


def _time(seconds: float) -> str:
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return f'"time":"{_second(whole)}.{milliseconds:03d}Z"'


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

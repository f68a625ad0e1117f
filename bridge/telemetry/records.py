"""Records: what is written down of a call, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
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
MAX_ARGUMENTS_BYTES = 16 * 1024
"""How much of the arguments is recorded, where they are."""


class CallRecord(NamedTuple):
    """One call of a tool, and what came of it."""

    began_at: float
    """In seconds since 1970."""
    request_id: object
    """The request's id, as the client chose it."""
    tool: str | None
    """The tool; None for one that does not exist."""
    server: str | None
    """The server behind this one that has the tool; None where it is here."""
    caller: str | None
    """Who called; None where nobody had to say."""
    transport: str
    """How the call came: ``stdio``, ``http`` or ``sse``."""
    duration_seconds: float
    error_type: str | None
    """None where the tool succeeded."""
    code: int | None
    """The code of an error of the protocol."""
    arguments: tuple[str, ...] | bytes
    """The names of the arguments, or all of them as JSON."""
    trace_id: str | None
    """The trace to which it belongs, in hexadecimal digits."""

    @property
    def outcome(self) -> str:
        """What came of it, in a word."""
        if self.error_type is None:
            return "ok"
        return self.error_type if self.error_type in {TOOL_ERROR, CANCELLED} else "error"

    @property
    def level(self) -> str:
        """How severe that is."""
        return {"ok": "info", "error": "error"}.get(self.outcome, "warning")


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


def record_as_json(record: CallRecord, **beside: Any) -> bytes:
    """A record as one line of JSON, without its end.

    Args:
        record: The record.
        beside: What stands before it.
    """
    told = {
        "time": datetime.fromtimestamp(record.began_at, UTC).isoformat(timespec="milliseconds"),
        **beside,
        "event": "call",
        "request_id": record.request_id,
        "tool": record.tool,
        "server": record.server,
        "caller": record.caller,
        "transport": record.transport,
        "duration_ms": round(record.duration_seconds * 1000, 3),
        "outcome": record.outcome,
    }
    if record.code is not None:
        told["code"] = record.code
    if record.trace_id is not None:
        told["trace_id"] = record.trace_id
    if isinstance(record.arguments, bytes):
        return b'%b,"arguments":%b}' % (to_json(told, fallback=repr)[:-1], record.arguments)
    names = [name[:MAX_NAME_CHARS] for name in record.arguments[:MAX_NAMES]]
    told["arguments"] = dict.fromkeys(names, REDACTED)
    return to_json(told, fallback=repr)


def gap_as_json(count: int, **beside: Any) -> bytes:
    """What says how many records are missing, as one line of JSON without its end.

    Args:
        count: How many.
        beside: What stands before it.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return to_json({"time": now, **beside, "event": "lost", "calls": count})

"""Records: what is written down of a call, as JSON.

A line is put together from pieces, most of which are the same for many calls, and are written once: as a whole, written
by a JSON library, it would cost more than counting, timing and tracing the call. Log and audit log share it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bridge.telemetry.conventions import CANCELLED, INPUT_REQUIRED, TOOL_ERROR
from bridge.telemetry.texts import abridged, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.telemetry.operations import Ended

Words: TypeAlias = tuple[str, str, str]
"""What records say of calls, as members of an object of JSON: who calls what and how, up to how long it took; that it
succeeded, and the arguments; the arguments alone."""
Kind: TypeAlias = tuple[str | None, str | None, str | None, str, tuple[str, ...]]
"""The name that is called, the server behind this one that has the tool, who calls, how clients come, and the names of
the arguments."""

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
MAX_KINDS = 1024
"""For how many kinds of calls the words are kept at once."""
MAX_ID = 2**63
"""Up to where the id of a request is recorded as a number; beyond, as a text."""
RECORD_END = "}"
"""What the line of a record ends with."""

_OUTCOMES = {None: "ok", INPUT_REQUIRED: INPUT_REQUIRED, TOOL_ERROR: TOOL_ERROR, CANCELLED: CANCELLED}
_LEVELS = {"ok": "info", INPUT_REQUIRED: "info", "error": "error"}


class Records(NamedTuple):
    """Calls of tools, and what came of each, written down in the order in which they ended."""

    lines: list[str]
    """Each as one line of JSON, but for its `RECORD_END`: a log says more before that."""
    failures: dict[int, str]
    """What went wrong, in a word, or `INPUT_REQUIRED`, by the index of the line; of a call that succeeded, nothing."""


class KnownWords(dict[Kind, Words]):
    """The words for each kind of calls, found when it comes first. What callers invent is kept within bounds."""

    def __missing__(self, kind: Kind) -> Words:
        """Find the words, and keep them by what they say of the kind."""
        called, server, caller, transport, names = kind
        seen = tool_seen(called), server, caller_seen(caller), transport, names_seen(names)
        if len(self) >= MAX_KINDS:
            self.clear()
        words = self[seen] = _words(called, server, caller, transport, written(dict.fromkeys(seen[-1], REDACTED)))
        return words


def words_with_arguments(
    called: str | None, server: str | None, caller: str | None, transport: str, arguments: Mapping[str, Any]
) -> Words:
    """The words for one call, with the values of its arguments; as for a `Kind`."""
    return _words(called, server, caller, transport, arguments_seen(arguments))


def id_seen(request_id: object) -> object:
    """What a record keeps of the id of a request: a client may choose any text, and a number of any length."""
    if type(request_id) is int and -MAX_ID < request_id < MAX_ID:
        return request_id
    return None if request_id is None else abridged(str(request_id))


def tool_seen(called: str | None) -> str | None:
    """What a record keeps of the name that was called: anybody may call any."""
    return called and abridged(called, MAX_TOOL_CHARS)


def caller_seen(caller: str | None) -> str | None:
    """What a record keeps of who calls: an issuer chose the name."""
    return caller and abridged(caller)


def names_seen(arguments: Iterable[str]) -> tuple[str, ...]:
    """What a record keeps of the names of arguments; what waits and what is kept has bounds by it."""
    return tuple([abridged(name, MAX_NAME_CHARS) for name in islice(arguments, MAX_NAMES)])


def arguments_seen(arguments: Mapping[str, Any]) -> str:
    """What a record keeps of arguments whose values are to be recorded, as JSON; what waits has bounds by it."""
    shown = written(arguments)
    length = len(shown.encode())
    return shown if length <= MAX_ARGUMENTS_BYTES else written(f"{length} bytes, more than are recorded")


def records_of(ended: Iterable[Ended], now: float) -> Records:
    """The records of what has ended, in its order; of what is no call there is none.

    Args:
        ended: What has ended, by `time.perf_counter`.
        now: How many seconds since 1970 were over when that was 0.
    """
    lines: list[str] = []
    failures: dict[int, str] = {}
    known, begin = None, ""
    for _, start, end, error_type, _, words, request_id, trace_id in ended:
        if words is None:
            continue
        call, success, arguments = words
        if (milliseconds := int((start + now) * 1000)) != known:  # in one of them many calls begin
            known, begin = milliseconds, f'{{{_time(milliseconds)},"event":"call","request_id":'
        if type(request_id) is not int or not -MAX_ID < request_id < MAX_ID:
            request_id = written(id_seen(request_id))  # noqa: PLW2901 - as it is written
        if error_type is not None:
            failures[len(lines)] = error_type
        rest = success if error_type is trace_id is None else f"{_outcome(error_type)}{_trace(trace_id)}{arguments}"
        lines.append(f"{begin}{request_id}{call}{_milliseconds(round((end - start) * 1_000_000))}{rest}")
    return Records(lines, failures)


def log_end(error_type: str | None) -> str:
    """What the line of a record ends with in the log, which says how severe it is.

    Args:
        error_type: What went wrong, in a word, or `INPUT_REQUIRED`; None for a success.
    """
    level = _LEVELS.get(_outcome_of(error_type), "warning")
    return f',"level":"{level}","logger":"bridge.calls"{RECORD_END}'


def audit_gap(count: int) -> str:
    """What says in the audit log how many records are missing."""
    return f'{{{_time(int(time() * 1000))},"event":"lost","calls":{count}}}'


def log_gap(count: int) -> str:
    """What says in the log how many records are missing."""
    now = _time(int(time() * 1000))
    return f'{{{now},"level":"error","logger":"bridge.calls","event":"lost","calls":{count}}}'


def _outcome_of(error_type: str | None) -> str:
    """What came of a call, in a word: ``ok``, ``input_required``, ``tool_error``, ``cancelled`` or ``error``."""
    return _OUTCOMES.get(error_type, "error")


def _words(called: str | None, server: str | None, caller: str | None, transport: str, arguments: str) -> Words:
    told = {"tool": tool_seen(called), "server": server, "caller": caller_seen(caller), "transport": transport}
    last = f',"arguments":{arguments}'
    return f',{written(told)[1:-1]},"duration_ms":', f"{_outcome(None)}{last}", last


@lru_cache(256)
def _outcome(error_type: str | None) -> str:
    said = "" if error_type in {None, INPUT_REQUIRED} else f',"error":{written(error_type)}'
    return f',"outcome":"{_outcome_of(error_type)}"{said}'


def _trace(trace_id: str | None) -> str:
    return "" if trace_id is None else f',"trace_id":"{trace_id}"'


@lru_cache(4096)
def _milliseconds(microseconds: int) -> str:
    return f"{microseconds / 1000:.3f}"


def _time(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f'"time":"{_second(seconds)}.{rest:03d}Z"'


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")

"""Activity of a process, for those who operate it: calls under way, and the last records and refusals.

Everything is bounded in number and length, and written as JSON only when somebody looks at it.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bridge.redaction import redact_url
from bridge.text import clip, utc_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.telemetry.records import CallDetails, CallRecord
    from bridge.types import Json

MAX_RECORDS = 500
"""Maximum records that are kept; the oldest are dropped."""
MAX_REFUSALS = 200
"""Maximum refused HTTP requests that are kept."""
MAX_REASON_BYTES = 512
"""Maximum bytes of the reason of a refusal."""


class ActiveCall(Protocol):
    """A call under way."""

    id: str
    """Id that this process has made."""
    details: CallDetails | None
    """The call; None for a request that is not kept."""
    progress: tuple[float, float | None] | None
    """Last progress and its total; None for none."""
    task: object
    """The task of asyncio that runs it; None if it is not known."""

    @property
    def age_seconds(self) -> float:
        """Seconds since its start."""
        ...


class Refusal(NamedTuple):
    """A refused HTTP request."""

    at_seconds: float
    """The time, in seconds since 1970."""
    status: int
    """HTTP status of the response."""
    body: bytes
    """The beginning of the response, which has the reason."""

    def as_json(self) -> Json:
        """Return the time, the status and the reason."""
        return {"time": utc_time(self.at_seconds), "status": self.status, "reason": _reason_in(self.body)}


class Activity:
    """Receives the records of calls (`bridge.telemetry.records.CallSink`), the calls under way, and refusals."""

    def __init__(self) -> None:
        self.calls: dict[str, ActiveCall] = {}
        """Calls under way by id, in the order of their start."""
        self._records: deque[str] = deque(maxlen=MAX_RECORDS)
        self._refusals: deque[Refusal] = deque(maxlen=MAX_REFUSALS)
        self._flush: Callable[[], object] = lambda: None

    def put(self, records: Sequence[CallRecord]) -> None:
        """Keep records, without arguments."""
        self._records.extend(record.summary for record in records)

    def wake(self, flush: Callable[[], object]) -> None:
        """Remember how to get the records that wait."""
        self._flush = flush

    def refused(self, status: int, body: bytes) -> None:
        """Keep a refusal."""
        self._refusals.append(Refusal(time(), status, body[:MAX_REASON_BYTES]))

    def recent(self) -> list[Json]:
        """Return the last records, the newest first."""
        self._flush()
        return [_shown(json.loads(line)) for line in reversed(self._records.copy())]

    def refusals(self) -> list[Json]:
        """Return the last refusals, the newest first."""
        return [refusal.as_json() for refusal in reversed(self._refusals.copy())]


def _shown(record: Json) -> Json:
    """Return a record whose URI has no secrets; its values may be arguments."""
    if record.get("resource"):
        record["resource"] = redact_url(record["resource"]).shown
    return record


def latencies(records: Sequence[Json]) -> dict[str, Json]:
    """Return the number of recorded calls of each server, and the median and 95th percentile of their milliseconds."""
    durations: defaultdict[str, list[float]] = defaultdict(list)
    for record in records:
        if record["event"] == "call" and record["server"] is not None:
            durations[record["server"]].append(record["duration_ms"])
    return {
        server: {"calls": len(found), "p50Ms": _percentile(found, 0.5), "p95Ms": _percentile(found, 0.95)}
        for server, found in durations.items()
    }


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def _reason_in(body: bytes) -> str:
    """Return the message of a response with an error."""
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):  # it was cut
        found = None
    if not isinstance(found, dict):
        return clip(body.decode(errors="replace"))
    error = found.get("error")
    if isinstance(error, dict):
        return clip(str(error.get("message", "")))
    return clip(str(found.get("error_description") or error))

"""Account: current usage by one caller, and the refusals of requests and calls over a limit."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from bridge.protocol.versions import MODERN_VERSIONS
from bridge.server.auth.access import matches
from bridge.server.limits.limits import Meter, Rate, local_meter
from bridge.tools.content import Text
from bridge.tools.tool import ToolExecutionResult
from bridge.types import RETRY_AFTER_META_KEY

if TYPE_CHECKING:
    from bridge.server.limits.limits import CallerLimits, Limits, MakeMeter
    from bridge.types import Json

    _Meters = tuple[tuple[Rate, Meter], ...]

_MAX_OTHER_REQUESTS = 16
"""Requests that a session may have beside its calls, such as answers to questions of a tool."""

BYTES_LIMIT = "bytes"
"""Name of the limit of a caller's bytes of results."""
_CONCURRENCY_RETRY_SECONDS = 1
_MODERN = frozenset(version.encode() for version in MODERN_VERSIONS)
_IMMEDIATE_REFUSALS = Rate(10, 1)


class ToolAccount:
    """Usage of one tool by one caller."""

    __slots__ = ("_account", "calls", "concurrency", "meters", "name")

    def __init__(self, name: str, limits: Limits, account: Account, make_meter: MakeMeter) -> None:
        self._account = account
        self.name = name
        self.calls = 0
        self.concurrency = min((n for each, n in limits.tool_concurrency.items() if matches((each,), name)), default=0)
        rates = [(each, rate) for each, rate in limits.tool_rates.items() if matches((each,), name)]
        self.meters: _Meters = tuple((rate, make_meter(name, each, rate=rate)) for each, rate in rates)

    def refusal(self, now: float) -> LimitExceeded | None:
        """Return the refusal of a further call; None if it may run."""
        if self.concurrency and self.calls >= self.concurrency:
            return too_many(f"too many calls of {self.name!r} at once", self.concurrency, "--tool-concurrency")
        return _over_rate(self.meters, now, f"{self.name!r} was called too often", "--tool-rate")

    def leave(self) -> None:
        """Note the end of a call."""
        self.calls -= 1
        self._account.leave()


class Account:
    """Usage of a server by one caller."""

    __slots__ = (
        "_bytes", "_limits", "_make_meter", "_meters", "_refusals", "_request_meters", "_tools", "calls", "requests",
        "streams", "tasks",
    )  # fmt: skip

    def __init__(self, limits: Limits, make_meter: MakeMeter = local_meter) -> None:
        self._limits = limits
        self._make_meter = make_meter
        of_bytes = limits.byte_rate
        self._request_meters: _Meters = () if limits.rate is None else ((limits.rate, make_meter(rate=limits.rate)),)
        self._bytes = None if of_bytes is None else make_meter("bytes", rate=of_bytes)
        self._meters = self._request_meters
        if of_bytes is not None and self._bytes is not None:
            self._meters = (*self._request_meters, (of_bytes, self._bytes))
        self._refusals = Meter(_IMMEDIATE_REFUSALS)
        self._tools: dict[str, ToolAccount] = {}
        self.requests = 0
        """Number of requests that are being answered, without streams."""
        self.streams = 0
        """Number of open streams."""
        self.calls = 0
        """Number of running calls."""
        self.tasks = 0
        """Number of running calls that are tasks, during which their caller sends requests."""

    def refusal(self, now: float, version: bytes | None) -> LimitExceeded | None:
        """Return the refusal of a further request; None if it is admitted.

        In a session, a client answers the questions of a running call by a further request, so that calls are limited,
        and some more requests are admitted.
        """
        if (refusal := self._over_rate(now)) is not None:
            return refusal
        most = self._limits.concurrency
        if most is None or self.requests < most > self.calls - self.tasks:
            return None
        if version in _MODERN or self.requests >= most + _MAX_OTHER_REQUESTS:
            return too_many("too many requests at once", most, "--concurrency")
        return None

    def stream_refusal(self, now: float) -> LimitExceeded | None:
        """Return the refusal of a further stream; None if it is admitted."""
        if (refusal := self._over_rate(now)) is not None:
            return refusal
        most = self._limits.max_streams
        if most is not None and self.streams >= most:
            return too_many("too many open streams", most, "--max-streams")
        return None

    def _over_rate(self, now: float) -> LimitExceeded | None:
        for rate, meter in self._meters:
            if (wait := meter.wait_seconds(now)) > 0:
                if meter is self._bytes:
                    return _too_often("too many bytes of results", rate.of_bytes, BYTES_LIMIT, wait)
                return _too_often("too many requests", rate, "--rate", wait)
        return None

    def count(self, now: float) -> None:
        """Count an admitted request."""
        for _, meter in self._request_meters:
            meter.count(now)

    def count_bytes(self, now: float, number: int) -> None:
        """Count the bytes of a result."""
        if self._bytes is not None:
            self._bytes.count_bytes(now, number)

    def is_answered_at_once(self, now: float) -> bool:
        """Return True if a refusal is sent without delay, which the first few of a caller are."""
        if self._refusals.wait_seconds(now) > 0:
            return False
        self._refusals.count(now)
        return True

    def calls_refusal(self) -> LimitExceeded | None:
        """Return the refusal of a further call by the number of those that run; None if it may run."""
        most = self._limits.concurrency
        if most is None or self.calls < most:
            return None
        return too_many("too many calls at once", most, "--concurrency")

    def tasks_refusal(self) -> LimitExceeded | None:
        """Return the refusal of a further task by the number of those that run; None if it may run."""
        most = self._limits.max_tasks
        return None if most is None or self.tasks < most else too_many("too many tasks at once", most, "tasks")

    def begin_task(self) -> None:
        """Count a task."""
        self.tasks += 1

    def end_task(self) -> None:
        """Note the end of a task."""
        self.tasks -= 1

    def enter(self, name: str, now: float) -> ToolAccount | LimitExceeded:
        """Count a call of an existing tool; return the account to leave at its end, or the refusal of the call."""
        if (refusal := self.calls_refusal()) is not None:
            return refusal
        tool = self._tools.get(name)
        if tool is None:
            tool = self._tools[name] = ToolAccount(name, self._limits, self, self._make_meter)
        if tool.concurrency or tool.meters:
            if (refusal := tool.refusal(now)) is not None:
                return refusal
            for _, meter in tool.meters:
                meter.count(now)
        self.calls += 1
        tool.calls += 1
        return tool

    def leave(self) -> None:
        """Note the end of a call."""
        self.calls -= 1

    def is_of(self, own: CallerLimits | None, team: str) -> bool:
        """True if the account has the limits of a caller, and is one of its team."""
        return own is None and not team

    def as_json(self, now: float) -> Json:
        """Return what is used of the limits, and the limits; of rates, the part that is used, from 0 to 1."""
        limits = self._limits
        rate, of_bytes = limits.rate, limits.byte_rate
        used = [meter.used(now) for _, meter in self._request_meters]
        return {
            "requests": self.requests,
            "calls": self.calls,
            "maxCalls": limits.concurrency,
            "streams": self.streams,
            "maxStreams": limits.max_streams,
            "tasks": self.tasks,
            "maxTasks": limits.max_tasks,
            "rate": rate and rate.as_json(),
            "rateUsed": max(used, default=None),
            "bytes": of_bytes and of_bytes.as_json("bytes"),
            "bytesUsed": None if self._bytes is None else self._bytes.used(now),
        }

    def is_unused(self, now: float) -> bool:
        """True if the account can be dropped."""
        if self.requests or self.streams or self.calls:
            return False
        meters = chain(self._meters, *(tool.meters for tool in self._tools.values()))
        return all(meter.is_unused(now) for _, meter in meters)


class LimitExceeded(NamedTuple):
    """Refusal of a request or call that is over a limit."""

    message: str
    limit: str
    """Name of the option that sets the limit."""
    retry_after_seconds: int

    @property
    def text(self) -> str:
        """The message with the time to try again."""
        seconds = self.retry_after_seconds
        return f"{self.message}; try again in {seconds} second{'' if seconds == 1 else 's'}"

    @property
    def data(self) -> dict[str, str | int]:
        """Data of a JSON-RPC error."""
        return {"limit": self.limit, "retryAfterSeconds": self.retry_after_seconds}

    @property
    def result(self) -> ToolExecutionResult:
        """Result of a refused call."""
        return ToolExecutionResult(
            (Text(self.text),), is_error=True, metadata={RETRY_AFTER_META_KEY: self.retry_after_seconds}
        )


def _over_rate(meters: _Meters, now: float, what: str, limit: str) -> LimitExceeded | None:
    for rate, meter in meters:
        if (wait := meter.wait_seconds(now)) > 0:
            return _too_often(what, rate, limit, wait)
    return None


def _too_often(what: str, rate: object, limit: str, wait_seconds: float) -> LimitExceeded:
    return LimitExceeded(f"{what}: a caller has {rate}", limit, max(1, math.ceil(wait_seconds)))


def too_many(what: str, at_most: int, limit: str) -> LimitExceeded:
    """Return the refusal of a caller over a maximum."""
    return LimitExceeded(f"{what}: a caller has {at_most} at once", limit, _CONCURRENCY_RETRY_SECONDS)


def too_many_of_all(what: str, at_most: int, limit: str) -> LimitExceeded:
    """Return the refusal when all callers together are over a maximum."""
    return LimitExceeded(f"{what}: the server has {at_most} at once for all callers", limit, _CONCURRENCY_RETRY_SECONDS)

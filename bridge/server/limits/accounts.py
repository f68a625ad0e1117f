"""Accounts: current usage by each caller, and the refusals of requests and calls over a limit.

Calls are counted at execution, so that limits hold for every transport and after a client has disconnected.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from functools import lru_cache, partial
from ipaddress import IPv6Address, IPv6Network
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import to_json

from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import LIMIT_EXCEEDED, MODERN_VERSIONS
from bridge.server.auth.access import matches
from bridge.server.limits.limits import Meter, Rate, local_meter
from bridge.tools.content import Text
from bridge.tools.execution import execute
from bridge.tools.tool import ToolExecutionResult
from bridge.types import RETRY_AFTER_META_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Scope

    from bridge.server.limits.limits import Limits, MakeMeter
    from bridge.server.running_calls import RunningCalls
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import ToolExecutionRequest, Tools
    from bridge.types import Json

    Execute = Callable[
        [Tools, ToolExecutionRequest, InvocationContext, ExecutionPolicy], Awaitable[ToolExecutionResult]
    ]
    _Meters = tuple[tuple[Rate, Meter], ...]

MAX_ACCOUNTS = 10_000
"""Maximum number of remembered callers; unused accounts are dropped first."""

_CACHED_NETWORKS = 4096

_MAX_OTHER_REQUESTS = 16
"""Requests that a session may have beside its calls, such as answers to questions of a tool."""

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
        self._account.calls -= 1


class Account:
    """Usage of a server by one caller."""

    __slots__ = ("_limits", "_make_meter", "_meters", "_refusals", "_tools", "calls", "requests", "streams", "tasks")

    def __init__(self, limits: Limits, make_meter: MakeMeter = local_meter) -> None:
        self._limits = limits
        self._make_meter = make_meter
        self._meters: _Meters = () if limits.rate is None else ((limits.rate, make_meter(rate=limits.rate)),)
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
        if (refusal := _over_rate(self._meters, now, "too many requests", "--rate")) is not None:
            return refusal
        most = self._limits.concurrency
        if most is None or self.requests < most > self.calls - self.tasks:
            return None
        if version in _MODERN or self.requests >= most + _MAX_OTHER_REQUESTS:
            return too_many("too many requests at once", most, "--concurrency")
        return None

    def stream_refusal(self, now: float) -> LimitExceeded | None:
        """Return the refusal of a further stream; None if it is admitted."""
        if (refusal := _over_rate(self._meters, now, "too many requests", "--rate")) is not None:
            return refusal
        most = self._limits.max_streams
        if most is not None and self.streams >= most:
            return too_many("too many open streams", most, "--max-streams")
        return None

    def count(self, now: float) -> None:
        """Count an admitted request."""
        for _, meter in self._meters:
            meter.count(now)

    def is_answered_at_once(self, now: float) -> bool:
        """Return True if a refusal is sent without delay, which the first few of a caller are."""
        if self._refusals.wait_seconds(now) > 0:
            return False
        self._refusals.count(now)
        return True

    def enter(self, name: str, now: float) -> ToolAccount | LimitExceeded:
        """Count a call of an existing tool; return the account to leave at its end, or the refusal of the call."""
        most = self._limits.concurrency
        if most is not None and self.calls >= most:
            return too_many("too many calls at once", most, "--concurrency")
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

    def is_unused(self, now: float) -> bool:
        """True if the account can be dropped."""
        if self.requests or self.streams or self.calls:
            return False
        meters = chain(self._meters, *(tool.meters for tool in self._tools.values()))
        return all(meter.is_unused(now) for _, meter in meters)


class Accounts:
    """The accounts of one server."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits
        self.clock = clock
        self.make_meter: MakeMeter = local_meter
        """Creates the meters of new accounts, given the caller's key first."""
        self._accounts: dict[str, Account] = {}

    def of(self, scope: Scope) -> Account:
        """Return the account of a request's caller."""
        key = caller_key(scope)
        account = self._accounts.get(key)
        if account is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._forget_some()
            account = self._accounts[key] = Account(self.limits, partial(self.make_meter, key))
        return account

    def _forget_some(self) -> None:
        now = self.clock()
        used = {key: each for key, each in self._accounts.items() if not each.is_unused(now)}
        while len(used) > MAX_ACCOUNTS // 2:
            del used[next(iter(used))]
        self._accounts = used

    def __len__(self) -> int:
        return len(self._accounts)


def caller_key(scope: Scope) -> str:
    """Return the key of a caller: the authenticated name, else the network address."""
    user = scope.get("user")
    if user is not None and (caller := getattr(user, "caller", None)) is not None:
        name: str = caller.name
        return name
    client = scope.get("client")
    return _network(client[0]) if client else ""


@lru_cache(_CACHED_NETWORKS)
def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))


class Usage:
    """Usage of an account by one request, while it is answered."""

    __slots__ = ("_has_begun", "_is_stream", "_now", "account")

    def __init__(self, account: Account, now: float, *, is_stream: bool = False) -> None:
        self.account = account
        self._now = now
        self._is_stream = is_stream
        self._has_begun = False

    def begin(self) -> None:
        """Count the request."""
        self._has_begun = True
        self.account.count(self._now)
        self._add(1)

    def end(self) -> None:
        """Count the request as answered, if it was counted."""
        if self._has_begun:
            self._has_begun = False
            self._add(-1)

    def _add(self, number: int) -> None:
        if self._is_stream:
            self.account.streams += number
        else:
            self.account.requests += number


current_account: ContextVar[Account | None] = ContextVar("bridge.server.limits", default=None)
"""Account of the caller of the running call; None over stdio, which has one caller."""


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
            return LimitExceeded(f"{what}: a caller has {rate}", limit, max(1, math.ceil(wait)))
    return None


def too_many(what: str, at_most: int, limit: str) -> LimitExceeded:
    """Return the refusal of a caller over a maximum."""
    return LimitExceeded(f"{what}: a caller has {at_most} at once", limit, _CONCURRENCY_RETRY_SECONDS)


def too_many_of_all(what: str, at_most: int, limit: str) -> LimitExceeded:
    """Return the refusal when all callers together are over a maximum."""
    return LimitExceeded(f"{what}: the server has {at_most} at once for all callers", limit, _CONCURRENCY_RETRY_SECONDS)


def limited(accounts: Accounts) -> Execute:
    """Execute calls unless they are over a limit of their caller; those are answered by an error that says when."""
    single = Account(accounts.limits)  # of the only caller over stdio

    async def run(
        tools: Tools, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> ToolExecutionResult:
        if tools.find(request.name) is None:
            return await execute(tools, request, context, policy)
        entered = (current_account.get() or single).enter(request.name, accounts.clock())
        if isinstance(entered, LimitExceeded):
            return entered.result
        try:
            return await execute(tools, request, context, policy)
        finally:
            entered.leave()

    return run


def bounded(executing: Execute, max_calls: int, running: RunningCalls) -> Execute:
    """Execute calls up to a maximum number of all callers together, because waiting calls take memory.

    A caller may have as many calls as stay free, as in `bridge.server.limits.shares.Shares`. Over that, `CallRefused`
    is raised.
    """
    if max_calls < 1:
        raise ValueError(f"max_calls must be at least 1, not {max_calls!r}")

    def is_over(context: InvocationContext) -> bool:
        others = running.count_of(context.account) - 1 if context.account else 0
        return len(running) + others > max_calls

    def run(
        tools: Tools, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> Awaitable[ToolExecutionResult]:
        # While half of the places are free, no caller can be over its share, and its calls need not be counted.
        if 2 * len(running) > max_calls and is_over(context) and tools.find(request.name) is not None:
            refusal = too_many_of_all("too many calls", max_calls, "--max-calls")
            raise CallRefused(ProtocolError(LIMIT_EXCEEDED, refusal.text, refusal.data))
        return executing(tools, request, context, policy)

    return run


def excess_bytes(max_bytes: int, plain: Json, written: object) -> int | None:
    """Return the length of a result as JSON if it is over its maximum, else None.

    Args:
        max_bytes: The maximum.
        plain: The result without members of the protocol.
        written: The result as it was written, or a tuple that begins with it.
    """
    text = written[0] if isinstance(written, tuple) else written
    # The written form is never shorter than the result: if it is within the limit, so is the result.
    if isinstance(text, bytes) and len(text) <= max_bytes:
        return None
    length = len(to_json(plain, inf_nan_mode="null"))
    return length if length > max_bytes else None

"""Accounts: current usage by each caller, and the refusals of requests and calls over a limit.

Calls are counted at execution, so that limits hold for every transport and after a client has disconnected.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache, partial
from ipaddress import IPv6Address, IPv6Network
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic_core import to_json

from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.protocol.versions import LIMIT_EXCEEDED
from bridge.server.limits.account import Account, LimitExceeded, ToolAccount, too_many_of_all
from bridge.server.limits.limits import local_meter
from bridge.tools.execution import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from starlette.types import Scope

    from bridge.server.limits.limits import CallerLimits, Limits, MakeMeter
    from bridge.server.running_calls import RunningCalls
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult, Tools
    from bridge.types import Json

    Execute = Callable[
        [Tools, ToolExecutionRequest, InvocationContext, ExecutionPolicy], Awaitable[ToolExecutionResult]
    ]

_Result = TypeVar("_Result")

MAX_ACCOUNTS = 10_000
"""Maximum number of remembered callers; unused accounts are dropped first."""

TEAM_KEY = "\0team "
"""Beginning of the key of a team's account, which no name of a caller has."""

_CACHED_NETWORKS = 4096


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
            account = self._accounts[key] = self._new(key, scope)
        elif (user := scope.get("user")) is not None and not account.is_of(*_terms_of(user)):
            account = self._accounts[key] = self._new(key, scope)  # what runs ends in the earlier one
        return account

    def _new(self, key: str, scope: Scope) -> Account:
        if len(self._accounts) >= MAX_ACCOUNTS:
            self._forget_some()
        own, team = _terms_of(scope.get("user"))
        limits, make_meter = self.limits.of_caller(own), partial(self.make_meter, key)
        if own is None and not team:
            return Account(limits, make_meter)
        from bridge.server.limits.teams import MemberAccount  # noqa: PLC0415 - only with teams

        shared = None if not team else self._of_team(team)
        return MemberAccount(limits, make_meter, own=own, team=team, shared=shared)

    def _of_team(self, team: str) -> Account:
        """Return the account of a team, which no caller has the key of."""
        key = TEAM_KEY + team
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(self.limits.of_team(team), partial(self.make_meter, key))
        return account

    def _forget_some(self) -> None:
        now = self.clock()
        used = {key: each for key, each in self._accounts.items() if not each.is_unused(now)}
        while len(used) > MAX_ACCOUNTS // 2:
            del used[next(iter(used))]
        self._accounts = used

    def known(self) -> dict[str, Account]:
        """Return the accounts by the keys of callers, those in use first; those of teams by `TEAM_KEY` and the name."""
        now = self.clock()
        return dict(sorted(self._accounts.items(), key=lambda item: item[1].is_unused(now)))

    def __len__(self) -> int:
        return len(self._accounts)


def _terms_of(user: Any) -> tuple[CallerLimits | None, str]:
    """Return the limits of a user's own, and its team."""
    caller: Caller | None = getattr(user, "caller", None)
    return getattr(user, "limits", None), "" if caller is None else getattr(caller, "team", "")


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


def check_tasks_of_caller() -> None:
    """Refuse a further task of the caller of the request, or of its team, over a limit.

    Raises:
        ProtocolError: Too many run; its data says when to try again.
    """
    account = current_account.get()
    if account is not None and (refused := account.tasks_refusal()) is not None:
        raise ProtocolError(LIMIT_EXCEEDED, refused.text, refused.data)


def count_result(accounts: Accounts, written: object) -> None:
    """Count the bytes of a result for the caller of the running call, and for its team.

    Args:
        accounts: The accounts of the server.
        written: The result as it was written, or a tuple that begins with it.
    """
    account, text = current_account.get(), written[0] if isinstance(written, tuple) else written
    if account is not None and isinstance(text, bytes):
        account.count_bytes(accounts.clock(), len(text))


class CallLimits:
    """Limits of calls: each is counted for its caller while it runs."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._single = Account(accounts.limits)  # of the only caller over stdio

    def enter(self, name: str) -> ToolAccount | LimitExceeded:
        """Count a call; return the account to leave at its end, or the refusal of the call."""
        return (current_account.get() or self._single).enter(name, self._accounts.clock())

    def counted(self, name: str, work: Coroutine[Any, Any, Any] | None) -> Coroutine[Any, Any, Any] | None:
        """Return a coroutine that runs that of a call, if any, and counts it until its end; None over a limit."""
        if work is None:
            return None
        entered = self.enter(name)
        if isinstance(entered, LimitExceeded):
            work.close()
            return None
        return _until_left(work, entered)

    async def execute(
        self, tools: Tools, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> ToolExecutionResult:
        """Execute a call unless it is over a limit; then it is answered by an error that says when to try again."""
        if tools.find(request.name) is None:
            return await execute(tools, request, context, policy)
        entered = self.enter(request.name)
        if isinstance(entered, LimitExceeded):
            return entered.result
        return await _until_left(execute(tools, request, context, policy), entered)


async def _until_left(work: Awaitable[_Result], entered: ToolAccount) -> _Result:
    try:
        return await work
    finally:
        entered.leave()


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

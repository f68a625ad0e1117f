"""Calls within limits: counted where they run, so that no transport and no way of hanging up leads around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic_core import to_json

from bridge.server.limits.accounts import Account, LimitExceeded, current_account, too_many_of_all
from bridge.server.protocol import LIMIT_EXCEEDED, CallRefused, ProtocolError
from bridge.tools.execution import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.server.limits.accounts import Accounts
    from bridge.server.running_calls import RunningCalls
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

_Written = TypeVar("_Written")

if TYPE_CHECKING:
    Execute = Callable[
        [ToolBox, ToolExecutionRequest, InvocationContext, ExecutionPolicy], Awaitable[ToolExecutionResult]
    ]


class LimitedCalls:
    """Runs calls as `bridge.tools.execution.execute` does, those that are over a limit excepted.

    Args:
        accounts: What each caller takes.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._clock = accounts.clock
        self._alone = Account(accounts.limits)

    async def execute(
        self, tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> ToolExecutionResult:
        """Run one request; one that is over a limit is a failed result that says when to try again."""
        if tools.find(request.name) is None:
            return await execute(tools, request, context, policy)
        place = (current_account.get() or self._alone).enter(request.name, self._clock())
        if isinstance(place, LimitExceeded):
            return place.result
        try:
            return await execute(tools, request, context, policy)
        finally:
            place.leave()


class BoundedCalls:
    """Runs calls as long as there are not too many of all callers: those that wait take memory.

    A caller may have as many as places are left, as with `bridge.server.limits.shares.Shares`: so one who takes all
    that it gets leaves half of them to others, and two a third.

    Args:
        execute: Runs a call.
        max_calls: How many may run or wait at once.
        running: Those that do, the one that is to be run among them.

    Raises:
        ValueError: None may.
    """

    def __init__(self, execute: Execute, max_calls: int, running: RunningCalls) -> None:
        if max_calls < 1:
            raise ValueError(f"max_calls must be at least 1, not {max_calls!r}")
        self._execute = execute
        self._max_calls = max_calls
        self._running = running

    def execute(
        self, tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> Awaitable[ToolExecutionResult]:
        """Run one request; one too many is refused by an error that says when to try again.

        Raises:
            CallRefused: Too many run or wait, of all callers or of this one.
        """
        # Nobody has more than all: while half are free, the calls of the caller need not be counted.
        if 2 * len(self._running) > self._max_calls and self._is_over(context) and tools.find(request.name) is not None:
            refusal = too_many_of_all("too many calls", self._max_calls, "--max-calls")
            raise CallRefused(ProtocolError(LIMIT_EXCEEDED, refusal.told, refusal.data))
        return self._execute(tools, request, context, policy)

    def _is_over(self, context: InvocationContext) -> bool:
        others = self._running.count_of(context.account) - 1 if context.account else 0
        return len(self._running) + others > self._max_calls


class ResultTooLongError(Exception):
    """A result is over its limit.

    Attributes:
        result_bytes: How long it is.
    """

    def __init__(self, result_bytes: int) -> None:
        super().__init__(f"{result_bytes} bytes")
        self.result_bytes = result_bytes


def write_within_limit(max_bytes: int, wire: Json, write: Callable[[Json], _Written]) -> _Written:
    """What is sent of a result, if the result is no longer than it may be.

    Args:
        max_bytes: How long it may be as JSON, without what the protocol adds.
        wire: The result.
        write: Makes of it what is sent, and may add to it.

    Raises:
        ResultTooLongError: It is longer.
    """
    plain = dict(wire)
    written = write(wire)
    text = written[0] if isinstance(written, tuple) else written
    # What is sent is never shorter: only where it is too long, or is not written yet, is the result written for this.
    if isinstance(text, bytes) and len(text) <= max_bytes:
        return written
    if (length := len(to_json(plain, inf_nan_mode="null"))) > max_bytes:
        raise ResultTooLongError(length)
    return written

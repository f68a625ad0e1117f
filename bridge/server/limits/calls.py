"""Calls within limits: counted where they run, so that no transport and no way of hanging up leads around it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from pydantic_core import to_json

from bridge.server.limits.account import Account, current_account
from bridge.server.limits.refused import Refused, too_many_of_all
from bridge.tools.execution import execute

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.server.limits.account import Accounts
    from bridge.server.publisher import Execute
    from bridge.server.running import RunningCalls
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.json_reading import Json
    from bridge.tools.model import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.toolbox import ToolBox

_Written = TypeVar("_Written")


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
        if isinstance(place, Refused):
            return place.result
        try:
            return await execute(tools, request, context, policy)
        finally:
            place.leave()


class BoundedCalls:
    """Runs calls as long as there are not too many of all callers: those that wait take memory.

    A caller that proves who it is may have as many as places are left (dynamic thresholds, Choudhury and Hahne 1998):
    so one who takes all that it gets leaves half of them to others, and two a third.

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
        self._calls_of: Counter[str] = Counter()

    def execute(
        self, tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
    ) -> Awaitable[ToolExecutionResult]:
        """Run one request; one too many is a failed result that says when to try again."""
        caller = None if context.caller is None else context.caller.name
        calls = 0 if caller is None else self._calls_of[caller]
        if len(self._running) + calls > self._max_calls and tools.find(request.name) is not None:
            return self._refused()
        running = self._execute(tools, request, context, policy)
        return running if caller is None else self._counted(caller, running)

    async def _refused(self) -> ToolExecutionResult:
        return too_many_of_all("too many calls", self._max_calls, "--max-calls").result

    async def _counted(self, caller: str, running: Awaitable[ToolExecutionResult]) -> ToolExecutionResult:
        self._calls_of[caller] += 1
        try:
            return await running
        finally:
            self._calls_of[caller] -= 1
            if not self._calls_of[caller]:
                del self._calls_of[caller]


class ResultTooLongError(Exception):
    """A result is over its limit.

    Attributes:
        result_bytes: How long it is.
    """

    def __init__(self, result_bytes: int) -> None:
        super().__init__(f"{result_bytes} bytes")
        self.result_bytes = result_bytes


def written_within(max_bytes: int, wire: Json, write: Callable[[Json], _Written]) -> _Written:
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

"""Limits of calls, counted at execution, so that they hold for every transport and after a client has disconnected."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    Execute = Callable[
        [ToolBox, ToolExecutionRequest, InvocationContext, ExecutionPolicy], Awaitable[ToolExecutionResult]
    ]


def limited(accounts: Accounts) -> Execute:
    """Execute calls unless they are over a limit of their caller; those are answered by an error that says when."""
    single = Account(accounts.limits)  # of the only caller over stdio

    async def run(
        tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
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
        tools: ToolBox, request: ToolExecutionRequest, context: InvocationContext, policy: ExecutionPolicy
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

"""Passing on: the call of a gateway's tool is sent in the turn in which it was received, without a task.

pass_on ─┬─> None                        `run` sends the call
         ╰─> BegunCall ─┬─> result       the response is written where it is received
                        ╰─> None         `run` continues the call, and does all that is not usual
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.context import InvocationContext


class BegunCall(Protocol):
    """A call that was sent, and for whose result nothing waits."""

    def hand_over(self) -> None:
        """Continue the call in a task, from the next turn of the event loop on."""
        ...


class PassingExecutor(Protocol):
    """Executor of another server's tool; its class has ``passes_on = True``."""

    def begin(
        self,
        arguments: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        receive: Callable[[ToolExecutionResult | None], None],
    ) -> BegunCall | None:
        """Send a call at once.

        Args:
            arguments: Its arguments.
            capabilities: Capabilities of the caller, of version 2026-07-28.
            receive: Called once, with the result, or with None if `execute` has to continue the call.

        Returns:
            The call; None, before anything is sent, if `execute` has to send it.
        """
        ...

    async def execute(
        self, request: ToolExecutionRequest, context: InvocationContext, begun: Any
    ) -> ToolExecutionResult:
        """Continue a call, or run it if ``begun`` is None; see `bridge.tools.tool.ToolExecutor`."""
        ...

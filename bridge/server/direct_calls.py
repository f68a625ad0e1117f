"""Direct calls: the call of a gateway's tool is sent in the turn in which it was received, without a task.

send_at_once ─┬─> None                         `run` sends the call
              ╰─> DirectCall ─┬─> result       the response is written where it is received
                              ╰─> None         `run` continues the call, and does all that is not usual
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.tools.caller import Caller
    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.context import InvocationContext


class DirectCall(Protocol):
    """A call that was sent, and for whose result nothing waits."""

    def continue_in_task(self) -> None:
        """Continue the call in a task, from the next turn of the event loop on."""
        ...


class DirectExecutor(Protocol):
    """Executor of another server's tool; its class has ``sends_at_once = True``."""

    def begin(
        self,
        arguments: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        caller: Caller | None,
        receive: Callable[[ToolExecutionResult | None], None],
        max_chars: int,
    ) -> DirectCall | None:
        """Send a call at once.

        Args:
            arguments: Its arguments.
            capabilities: Capabilities of the client, of version 2026-07-28.
            caller: The authenticated caller; None without authentication.
            receive: Called once, with the result, or with None if `execute` has to continue the call.
            max_chars: Length up to which a result is given to ``receive``; `execute` returns a longer one.

        Returns:
            The call; None, before anything is sent, if `execute` has to send it.
        """
        ...

    async def execute(
        self, request: ToolExecutionRequest, context: InvocationContext, sent: Any
    ) -> ToolExecutionResult:
        """Continue a call, or run it if ``sent`` is None; see `bridge.tools.tool.ToolExecutor`."""
        ...

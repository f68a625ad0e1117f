"""Interfaces of a gateway for what it passes on: calls of tools of other servers, requests of extensions, and tasks.

A call is sent in the turn in which it was received, without a task:

send_at_once ─┬─> None                         `run` sends the call
              ╰─> ForwardedCall ─┬─> result    the response is written where it is received
                                 ╰─> None      `run` continues the call, and does all that is not usual
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bridge.tools.caller import Caller
    from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.task import Task
    from bridge.types import Json


class ForwardedCall(Protocol):
    """A call that was sent, and for whose result nothing waits."""

    def continue_in_task(self) -> None:
        """Continue the call in a task, from the next turn of the event loop on."""
        ...


class ForwardingExecutor(Protocol):
    """Executor of another server's tool; its class has ``sends_at_once = True``."""

    def begin(
        self,
        arguments: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        caller: Caller | None,
        receive: Callable[[ToolExecutionResult | None], None],
        max_chars: int,
    ) -> ForwardedCall | None:
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


class ForwardedRequests(Protocol):
    """Passes requests and notifications on to other servers."""

    def takes(self, params: Json) -> bool:
        """Return True if a server may have a method, given the parameters of a request."""
        ...

    async def answer(self, method: str, params: Json, context: InvocationContext) -> Json:
        """Return a server's result.

        Raises:
            ProtocolError: No server has the method, or one refused the request.
            ToolError: The server is unavailable.
            InputRequired: The server asked a question that only the caller's next request can answer.
        """
        ...

    def notified(self, method: str, params: Json, context: InvocationContext) -> None:
        """Pass a notification of a client on."""
        ...


class ForwardedTasks(Protocol):
    """Tasks of other servers. Whoever answers for them knows them by their IDs, and keeps nothing."""

    def bind(self, audience: str, keys: Sequence[bytes] | None) -> None:
        """Bind IDs to the server that answers for them.

        Args:
            audience: Its name; IDs of other servers are refused.
            keys: Its keys, which its replicas share; None to let IDs be valid in this process alone.
        """
        ...

    def has(self, task_id: str) -> bool:
        """Return True if an ID may be that of a forwarded task, and not of one of this server."""
        ...

    async def get(self, task_id: str, context: InvocationContext) -> Task:
        """Return a task.

        Raises:
            ProtocolError: There is no such task of this caller, or its server cannot be reached.
        """
        ...

    def tool_of(self, task_id: str, context: InvocationContext) -> str:
        """Return the name of the tool whose call is a task; empty if it is not known.

        Raises:
            ProtocolError: There is no such task of this caller.
        """
        ...

    async def update(self, task_id: str, context: InvocationContext, answers: Mapping[str, Json]) -> None:
        """Give a task answers to its questions.

        Raises:
            ProtocolError: As by `get`, or its server refuses the answers.
        """
        ...

    async def cancel(self, task_id: str, context: InvocationContext) -> None:
        """Cancel a task.

        Raises:
            ProtocolError: As by `get`.
        """
        ...

    def watch(
        self, task_ids: Iterable[str], context: InvocationContext, listener: Callable[[str], None]
    ) -> Callable[[], None]:
        """Call a function with a task's ID after each change of its state; return a function that ends that."""
        ...

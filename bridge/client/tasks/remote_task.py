"""RemoteTask: a task on a server, which can be stored as text and taken up by another process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from bridge.errors import (
    DefinitionError,
    OutcomeUnknownError,
    ServerAnswerError,
    ServerFailure,
    ServerRefusedError,
    WireError,
)
from bridge.wire.questions import answer_to_wire
from bridge.wire.tasks import task_from_wire
from bridge.wire.tools import result_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.remote_tool import RemoteExecutor
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer
    from bridge.tools.task import Task
    from bridge.tools.tool import ToolExecutionResult
    from bridge.types import Json

_SCHEME = "task"
_PARTS = 3
_INVALID_PARAMS = -32602


class RemoteTask:
    """A call of a remote tool that goes on without its request. Made by `McpToolProvider.start` and `.task`.

    ``str(task)`` is a text that names the server, the tool and the task, without credentials; `McpToolProvider.task`
    takes the task up again from it, in any process. If the server has answered the call directly, there is no task on
    the server: the result is kept here alone, and the text only says so.

    Args:
        executor: Executor of the tool.
        task_id: ID of the task on its server; empty if the server has answered directly.
        context: Invocation context of the requests.
        direct: The direct answer; None if there was none, or if another process has it.
    """

    def __init__(
        self,
        executor: RemoteExecutor,
        task_id: str,
        context: InvocationContext,
        direct: ToolExecutionResult | None = None,
    ) -> None:
        self.server = executor.server.name
        """The server's name in the configuration."""
        self.tool = executor.tool
        """The tool's name on the server."""
        self.id = task_id
        """ID of the task on its server; empty if the server has answered directly."""
        self._executor = executor
        self._context = context
        self._direct = direct

    def __str__(self) -> str:
        return ":".join((_SCHEME, "/".join(quote(each, safe="") for each in (self.server, self.tool, self.id))))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    async def status(self) -> Task:
        """Ask the server for the state.

        Returns:
            The state; with the state ``input_required``, `bridge.tools.task.Task.questions` has the open questions.

        Raises:
            OutcomeUnknownError: The server does not know the task, or its direct answer is not in this process.
            ServerError: The server cannot be reached, or violates the protocol.
        """
        if not self.id:
            outcome = result_to_wire(self._kept())
            return task_from_wire({"taskId": "-", "status": "completed", "result": outcome, "createdAt": None})
        wire = await self._request("tasks/get")
        try:
            return task_from_wire(wire)
        except WireError as error:
            raise ServerAnswerError(self._failure(f"its response is not valid MCP: {error}")) from error

    async def result(self) -> ToolExecutionResult:
        """Wait for the end; the handlers of the provider answer the questions, and status messages are its progress.

        The limits of a call hold, and each answer of the server restarts the one without progress. Cancelling the wait
        leaves the task running.

        Returns:
            The result; of a tool that failed, it has ``is_error``.

        Raises:
            OutcomeUnknownError: The task was cancelled, the server does not know it, or a limit was reached.
            ServerRefusedError: The task has failed.
            ServerAnswerError: The server violates the protocol, or asks something that no handler can answer; see
                `answer`.
            ToolError: The result is malformed, or violates the output schema.
        """
        if not self.id:
            return self._kept()
        wire = await self._executor.server.task_result(self.id, context=self._context)
        return await self._executor.read(wire)

    async def cancel(self) -> None:
        """Ask the server to cancel the task; nothing happens if it has ended.

        Raises:
            OutcomeUnknownError: The server does not know the task.
            ServerError: The server cannot be reached.
        """
        if self.id:
            await self._request("tasks/cancel")

    async def answer(self, answers: Mapping[str, Answer]) -> None:
        """Answer questions of the task, by their keys in `bridge.tools.task.Task.questions`; others are ignored.

        Raises:
            OutcomeUnknownError: The server does not know the task, or refuses an answer.
            ServerError: The server cannot be reached.
        """
        if self.id:
            await self._request(
                "tasks/update", inputResponses={key: answer_to_wire(each) for key, each in answers.items()}
            )

    async def _request(self, method: str, **params: Any) -> Json:
        try:
            return await self._executor.server.request(method, {"taskId": self.id, **params}, context=self._context)
        except ServerRefusedError as error:
            if error.code != _INVALID_PARAMS:
                raise
            raise self._unknown(f"the server refuses {method}: {error.message}: the outcome is unknown") from error

    def _kept(self) -> ToolExecutionResult:
        if self._direct is None:
            raise self._unknown(
                "the server has answered this call directly, and its result was only in the process that has started it"
            )
        return self._direct

    def _unknown(self, reason: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(self._failure(reason))

    def _failure(self, reason: str) -> ServerFailure:
        return ServerFailure(server=self.server, phase=f"the task {str(self)!r}", reason=reason)


def task_parts(text: str) -> tuple[str, str, str]:
    """Return the server, the tool and the ID in the text of a task.

    Raises:
        DefinitionError: It is no such text.
    """
    scheme, _, rest = str(text).partition(":")
    parts = [unquote(each) for each in rest.split("/")]
    if scheme != _SCHEME or len(parts) != _PARTS or not all(parts[:2]):
        raise DefinitionError(f"{text!r} is not the text of a task: it is 'task:SERVER/TOOL/ID'")
    server, tool, task_id = parts
    return server, tool, task_id

"""Tasks for programs without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.client.tasks.remote_task import RemoteTask
    from bridge.tools.questions import Answer
    from bridge.tools.task import Task
    from bridge.tools.tool import ToolExecutionResult


class _Run(Protocol):
    def __call__(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any: ...


class BlockingTask:
    """Blocking version of a `RemoteTask`, with the same text; made by `BlockingToolProvider.start` and `.task`.

    Args:
        task: The task.
        run: Runs a coroutine function in the event loop of the provider.
    """

    def __init__(self, task: RemoteTask, run: _Run) -> None:
        self._task = task
        self._run = run

    def __str__(self) -> str:
        return str(self._task)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    @property
    def server(self) -> str:
        """The server's name in the configuration."""
        return self._task.server

    @property
    def tool(self) -> str:
        """The tool's name on the server."""
        return self._task.tool

    @property
    def id(self) -> str:
        """ID of the task on its server; empty if the server has answered directly."""
        return self._task.id

    def status(self) -> Task:
        """Ask the server for the state; see `RemoteTask.status`."""
        state: Task = self._run(self._task.status)
        return state

    def result(self) -> ToolExecutionResult:
        """Wait for the end; see `RemoteTask.result`."""
        result: ToolExecutionResult = self._run(self._task.result)
        return result

    def cancel(self) -> None:
        """Ask the server to cancel the task; see `RemoteTask.cancel`."""
        self._run(self._task.cancel)

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Answer questions of the task; see `RemoteTask.answer`."""
        self._run(self._task.answer, answers)

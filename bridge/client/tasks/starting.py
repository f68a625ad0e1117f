"""Starting calls as tasks, and taking tasks up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bridge.client.remote_tool import RemoteExecutor
from bridge.client.tasks.remote_task import RemoteTask, task_parts
from bridge.errors import DefinitionError, ServerError, ToolError, UnknownToolError
from bridge.text import nearest
from bridge.tools.context import InvocationContext
from bridge.tools.middleware import WrappedExecutor
from bridge.tools.tool import Tool, ToolExecutionResult
from bridge.tools.toolbox import ToolBox
from bridge.wire.tasks import is_created_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.tool_catalog import RemoteName, ServerStatus
    from bridge.client.upstream import Upstream
    from bridge.tools.tool import ToolExecutionRequest, ToolExecutor

NOT_OPEN = "the provider of the servers is not open; use it in `async with provider:`, or call `await provider.open()`"

_TASK = "task"


@dataclass(frozen=True, slots=True)
class DetachedExecutor:
    """Runs a remote tool until its server has made a task of the call, whose text is the result, or has answered."""

    executor: RemoteExecutor
    """Executor of the tool."""

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        """Run one request; see `RemoteExecutor.execute`."""
        remote = self.executor
        options = replace(remote.options, hands_on_tasks=True)
        try:
            wire = await remote.call(request.arguments_by_name(), context, options)
        except ServerError as error:
            raise ToolError(error.brief) from error
        if not is_created_task(wire):
            return await remote.read(wire)
        task = RemoteTask(remote, wire["taskId"], context)
        result = ToolExecutionResult.of_text(f"The call goes on as the task {task}")
        return replace(result, attributes={_TASK: task})


def detached_tool(tool: Tool) -> Tool:
    """Return a tool whose calls end when their server has made tasks of them; other tools as they are."""
    if _remote(tool.executor) is None:
        return tool
    specification = replace(tool.specification, output_schema=None)  # which the text of a task does not match
    return replace(tool, specification=specification, executor=_detached(tool.executor))


def _remote(executor: ToolExecutor) -> RemoteExecutor | None:
    """Return the executor of a remote tool within its middleware; None for one of another tool."""
    while isinstance(executor, WrappedExecutor):
        executor = executor.executor
    return executor if isinstance(executor, RemoteExecutor) else None


def _detached(executor: ToolExecutor) -> ToolExecutor:
    if isinstance(executor, WrappedExecutor):
        return replace(executor, executor=_detached(executor.executor))
    assert isinstance(executor, RemoteExecutor)
    return DetachedExecutor(executor)


class TaskStarter(ABC):
    """Base of a provider: calls tools, starts calls as tasks, and takes tasks up."""

    tools: ToolBox
    _is_open: bool

    @property
    @abstractmethod
    def upstreams(self) -> Mapping[str, Upstream]:
        """The servers by name."""

    @property
    @abstractmethod
    def origins(self) -> Mapping[str, RemoteName]:
        """Server and remote name of each tool, by local name."""

    @abstractmethod
    def status(self) -> tuple[ServerStatus, ...]:
        """Current status of each server."""

    def unknown_tool(self, name: str) -> UnknownToolError:
        """Create the error for a name that no tool has; it names near tools, and unavailable servers."""
        near = [local for local, origin in self.origins.items() if origin.tool == name]
        problems = [status.problem.brief for status in self.status() if not status.is_listed and status.problem]
        if self.upstreams and not self._is_open:
            problems = [NOT_OPEN]
        return UnknownToolError(name, near or nearest(name, (tool.name for tool in self.tools), 3), problems)

    def require_open(self) -> None:
        """Check that the provider is open, or has no servers.

        Raises:
            DefinitionError: It is not open.
        """
        if self.upstreams and not self._is_open:
            raise DefinitionError(NOT_OPEN)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> ToolExecutionResult:
        """Call a tool by its local name; see `bridge.ToolBox.call`. The arguments are sent unchanged.

        Returns:
            The result. Failures, including an unreachable server, are results with ``is_error``.
        """
        unknown = None if name in self.tools else self.unknown_tool(name)
        result = await self.tools.call(name, arguments, context=context, **more)
        return result if unknown is None else ToolExecutionResult.error(str(unknown))

    async def start(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> RemoteTask:
        """Call a tool as `call` does, but return as soon as its server has made a task of the call, or has answered it.

        Raises:
            UnknownToolError: There is no such tool.
            DefinitionError: It is not one of a server.
        """
        if name not in self.tools:
            raise self.unknown_tool(name)
        tool, context = self.tools.get(name), context or InvocationContext()
        if (remote := _remote(tool.executor)) is None:
            raise DefinitionError(f"the tool {name!r} is not one of a server, and cannot be started: call it")
        result = await ToolBox([detached_tool(tool)]).call(name, arguments, context=context, **more)
        task = result.attributes.get(_TASK)
        return task if isinstance(task, RemoteTask) else RemoteTask(remote, "", context, result)

    def task(self, text: str, *, context: InvocationContext | None = None) -> RemoteTask:
        """Take up a task that any process has started.

        Args:
            text: ``str()`` of the task.
            context: Invocation context of the requests; None for an empty one.

        Raises:
            DefinitionError: It is no such text, or there is no such server.
        """
        name, remote_name, task_id = task_parts(text)
        server = self.upstreams.get(name)
        if server is None:
            names = ", ".join(self.upstreams) or "none"
            raise DefinitionError(f"the task is one of the server {name!r}, which is not here; servers: {names}")
        executors = (each.executor for each in server.tools if isinstance(each.executor, RemoteExecutor))
        executor = next((each for each in executors if each.tool == remote_name), RemoteExecutor(server, remote_name))
        return RemoteTask(executor, task_id, context or InvocationContext())

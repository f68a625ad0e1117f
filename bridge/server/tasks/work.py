"""Work of a task: its call, in a task of the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bridge.server.auth.access import EVERYTHING
from bridge.tools.labels import version_in
from bridge.tools.task import TaskPolicy
from bridge.wire.received import write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.running_calls import RunningCalls
    from bridge.server.session_states import SessionStates
    from bridge.server.tasks.channel import TaskChannel
    from bridge.telemetry.tasks import TaskTelemetry
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

    Work = asyncio.Task[tuple[bytes, Json]]
    """Runs the call; its result as JSON text, and as an object."""

_AFTER = TaskPolicy(starts_at_once=False)


class TaskServer(Protocol):
    """Server whose calls become tasks: a `bridge.server.core.ServerCore`."""

    name: str
    tools: ToolBox
    running: RunningCalls

    @property
    def session_states(self) -> SessionStates:
        """State of the sessions of its clients."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], tuple[bytes, Json]],
        *,
        modern: bool,
        access: Access = EVERYTHING,
        older: Tool | None = None,
    ) -> tuple[bytes, Json]:
        """Run a call.

        Raises:
            ProtocolError: The call failed outside of the tool.
            InputRequired: The tool asked a question that needs another round.
        """
        ...


class TaskCall(NamedTuple):
    """A call that is, or may become, a task."""

    tool: Tool
    arguments: Mapping[str, Any]
    context: InvocationContext
    access: Access
    channel: TaskChannel

    @property
    def policy(self) -> TaskPolicy:
        """The policy of the tool; without one, the call may become a task after a time."""
        return self.tool.task or _AFTER

    def start(self, calls: TaskServer, watched: TaskTelemetry | None) -> Work:
        """Start the call; see `start_work`."""
        return start_work(calls, self.tool.name, self.arguments, self.context, self.access, watched)


def start_work(
    calls: TaskServer,
    name: str,
    arguments: Mapping[str, Any],
    context: InvocationContext,
    access: Access,
    watched: TaskTelemetry | None,
) -> Work:
    """Start a call, of the version that the request names if there still is one.

    Args:
        calls: Runs it.
        name: Name of the tool.
        arguments: Its arguments.
        context: Its context.
        access: Access of the caller.
        watched: Observes the call as the work of a task; None for no observation.
    """
    version = version_in(context.meta)
    older = None if version is None else calls.tools.versions_of(name).get(version)
    call = calls.call(name, arguments, context, _written, modern=True, access=access, older=older)
    if watched is not None:
        call = _observed(call, name, watched)
    return asyncio.get_running_loop().create_task(call)


async def _observed(
    call: Coroutine[Any, Any, tuple[bytes, Json]], tool: str, watched: TaskTelemetry
) -> tuple[bytes, Json]:
    with watched.work(tool):
        return await call


def _written(result: Json) -> tuple[bytes, Json]:
    return write_result(result), result

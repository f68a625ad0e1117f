"""Tools for a model that does not wait for tasks: it reads a task's text, and looks at the task with another tool."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import anyio
from pydantic import Field

from bridge.client.tasks.starting import detached_tool
from bridge.errors import DefinitionError, ServerError, ToolError
from bridge.tools.context import InvocationContext  # noqa: TC001 - the parameter of a tool
from bridge.tools.function import tool, tools_from
from bridge.tools.schema.annotations import P
from bridge.tools.tool import ToolExecutionResult

if TYPE_CHECKING:
    from bridge.client.provider import McpToolProvider
    from bridge.tools.task import Task
    from bridge.tools.tool import Tool, ToolProviderRequest

MAX_WAIT_SECONDS = 60
"""Maximum seconds for which a model may wait for a task at once."""


class DetachedTools:
    """Tool provider of an AI service whose model does not wait for tasks.

    A call that its server makes a task ends with the text of the task, and the model looks at the task with the tool
    ``look_at_task``, in this invocation or a later one. Other calls end with their results, as always.

    Args:
        provider: The servers; open while the service uses it.
    """

    is_dynamic = True
    """The tools may change between two calls of a model."""

    def __init__(self, provider: McpToolProvider) -> None:
        self._provider = provider

    async def provide_tools(self, request: ToolProviderRequest) -> list[Tool]:
        """Return the current tools of the servers, and ``look_at_task``."""
        tools = await self._provider.provide_tools(request)
        return [*map(detached_tool, tools), *self._tools]

    @cached_property
    def _tools(self) -> list[Tool]:
        return tools_from(self)

    @tool(
        "Look at a task that a call goes on as: its state, or its result if it has ended.",
        name="look_at_task",
        timeout_seconds=2 * MAX_WAIT_SECONDS,
    )
    async def _look(
        self,
        context: InvocationContext,
        task: Annotated[str, P("The text of the task, which begins with 'task:'.")],
        wait_seconds: Annotated[
            float, P("How long to wait for its end before its state is returned."), Field(ge=0, le=MAX_WAIT_SECONDS)
        ] = 0,
    ) -> ToolExecutionResult:
        try:
            remote = self._provider.task(task, context=context)
            state = await remote.status()
            if state.is_final:
                return await remote.result()
            with anyio.move_on_after(wait_seconds):
                return await remote.result()
            return ToolExecutionResult.of_text(_described(await remote.status()))
        except DefinitionError as error:
            raise ToolError(str(error)) from error
        except ServerError as error:
            raise ToolError(error.brief) from error


def _described(state: Task) -> str:
    """Describe a state for a model."""
    params = (each.get("params") for each in state.questions.values())
    asked = "; ".join(str(each["message"]) for each in params if isinstance(each, dict) and "message" in each)
    detail = asked if state.status == "input_required" and asked else state.status_message
    return state.status if not detail else f"{state.status}: {detail}"

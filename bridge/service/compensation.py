"""Compensation: what undoes a tool's success, where the invocation that it was for fails after all.

    tools = [compensated(book_flight, "cancel_flight"), cancel_flight, charge_card]

Where the invocation ends without an answer, what succeeded in it is undone in reverse, as far as it says how.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import anyio

from bridge.errors import DefinitionError
from bridge.service.approval import approved
from bridge.tools.arguments import parse_arguments
from bridge.tools.execution import LOCAL, execute
from bridge.tools.function import tools_from
from bridge.tools.tool import Tool, ToolExecution, ToolExecutionRequest

if TYPE_CHECKING:
    from bridge.tools.context import InvocationContext
    from bridge.tools.toolbox import ToolBox

_logger = logging.getLogger("bridge.service")

UNDO_SECONDS = 60.0
"""How long all the undoing of an invocation may take; a cancelled one waits for it."""

Undo = Callable[[ToolExecution, "InvocationContext"], "Awaitable[None] | None"]
"""Undoes one execution of a tool."""


@dataclass(frozen=True, slots=True)
class CompensatedTool(Tool):
    """A tool whose successes can be undone; see `compensated`."""

    undo: Undo | str = field(kw_only=True)
    """What undoes a success, or the name of the tool that does."""


def compensated(source: object, undo: Undo | str) -> CompensatedTool:
    """A tool whose successes are undone where the invocation fails after all.

    Args:
        source: The tool: a Tool, or a function.
        undo: A function that gets the execution and the context; or the name of another tool of the service, which the
            model does not see. That one is called with the arguments of the call and the fields of its structured
            result, by name; those that are not among its parameters are left out, unless it takes any.

    Raises:
        DefinitionError: It is not one tool.
    """
    tools = tools_from(source)
    if len(tools) != 1:
        raise DefinitionError(f"compensated takes one tool, and {source!r} holds {len(tools)}; name one of them")
    values = {each.name: getattr(tools[0], each.name) for each in fields(Tool)}
    return CompensatedTool(values.pop("specification"), values.pop("executor"), undo=undo, **values)


def undoing_names(tools: Collection[Tool], *, may_miss: bool) -> frozenset[str]:
    """The names of the tools that undo others: a model neither sees nor calls them.

    Args:
        tools: All tools of a service.
        may_miss: A tool that undoes another may come later.

    Raises:
        DefinitionError: A tool is to be undone by one that is not there.
    """
    undone = {
        tool.undo: tool.name for tool in tools if isinstance(tool, CompensatedTool) and isinstance(tool.undo, str)
    }
    missing = [] if may_miss else sorted(undone.keys() - {tool.name for tool in tools})
    if missing:
        raise DefinitionError(
            f"the tool {undone[missing[0]]!r} is to be undone by {missing[0]!r}, which is no tool of the service; "
            "give that tool too, or a function"
        )
    return frozenset(undone)


class Compensations:
    """What has succeeded in one invocation and can be undone."""

    __slots__ = ("_context", "_done")

    def __init__(self, context: InvocationContext) -> None:
        self._context = context
        self._done: list[tuple[Undo | str, ToolExecution]] = []

    def note(self, tool: Tool | None, execution: ToolExecution) -> None:
        """A tool has run."""
        if isinstance(tool, CompensatedTool) and not execution.result.is_error:
            self._done.append((tool.undo, execution))

    async def undo(self, tools: ToolBox, cause: BaseException) -> None:
        """Undo all of it, last first; what cannot be undone is logged, and noted on the cause."""
        if not self._done:
            return
        with anyio.move_on_after(UNDO_SECONDS, shield=True) as scope:
            while self._done:
                how, execution = self._done.pop()
                try:
                    await self._undo(how, execution, tools)
                except Exception as error:  # noqa: BLE001 - the others are undone nevertheless
                    _note(execution, f"{error!s} ({type(error).__name__})", cause, error)
        if scope.cancelled_caught:
            _note(execution, f"no end within {UNDO_SECONDS:g} seconds", cause, None)

    async def _undo(self, how: Undo | str, execution: ToolExecution, tools: ToolBox) -> None:
        if not isinstance(how, str):
            answer = how(execution, self._context)
            if inspect.isawaitable(answer):
                await answer
            return
        values = {**_arguments(execution), **_structured(execution)}
        parameters = tools.get(how).specification.parameters
        if parameters.get("additionalProperties") is False:
            values = {name: value for name, value in values.items() if name in parameters.get("properties", {})}
        request = ToolExecutionRequest(how, values)
        with approved(request):  # whoever approved the call approved this
            result = await execute(tools, request, self._context, LOCAL)
        if result.is_error:
            raise RuntimeError(result.text)


def _arguments(execution: ToolExecution) -> Mapping[str, Any]:
    arguments = execution.request.arguments
    return parse_arguments(execution.request.name, arguments) if isinstance(arguments, str) else arguments


def _structured(execution: ToolExecution) -> Mapping[str, Any]:
    content = execution.result.structured_content
    return content if isinstance(content, Mapping) else {}


def _note(execution: ToolExecution, why: str, cause: BaseException, error: Exception | None) -> None:
    said = f"the success of the tool {execution.request.name!r} could not be undone: {why}"
    cause.add_note(said)
    _logger.error("%s", said, exc_info=error)

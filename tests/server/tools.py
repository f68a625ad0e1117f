"""Tools that the tests of the server publish."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
from anyio.lowlevel import current_token

from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest

    Body = Callable[[Mapping[str, Any], InvocationContext], Awaitable[Any]]

NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@dataclass(frozen=True)
class Running:
    """An executor written by hand."""

    body: Body

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        assert not isinstance(request.arguments, str)
        result = await self.body(request.arguments, context)
        return result if isinstance(result, ToolExecutionResult) else ToolExecutionResult.of_text(str(result))


def made(name: str, body: Body, **specification: Any) -> Tool:
    """Return a tool of that name that runs a body."""
    return Tool(ToolSpecification(name=name, description=f"The tool {name}.", **specification), Running(body))


def silent(name: str, body: Body, **specification: Any) -> Tool:
    """Return a tool that is declared as not interactive."""
    return replace(made(name, body, **specification), interactive=False)


async def _add(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    return arguments["a"] + arguments["b"]


ADD = made(
    "add",
    _add,
    parameters={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
)


async def _greet(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    answer = await context.elicit("Who are you?", NAME_FORM, key="name")
    return f"Hello {answer.content['name']}" if answer.content else answer.action


GREET = made("greet", _greet)


class Waiting:
    """A tool that waits until it is released or cancelled, and records which."""

    def __init__(self, name: str = "wait") -> None:
        self.started = anyio.Event()
        self.cancelled = anyio.Event()
        self.released = anyio.Event()
        self.finished = anyio.Event()
        self.tool = made(name, self._wait)

    async def _wait(self, arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        self.started.set()
        try:
            await self.released.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        self.finished.set()
        return "released"


class Holding:
    """The same for a server in another thread: each event can be awaited from here."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.finished = threading.Event()
        self._let_go: Callable[[], object] | None = None
        self.tool = made("hold", self._hold)

    async def _hold(self, arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        released, loop = anyio.Event(), current_token()
        self._let_go = lambda: anyio.from_thread.run_sync(released.set, token=loop)
        self.started.set()
        try:
            await released.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        self.finished.set()
        return "released"

    def let_go(self) -> None:
        """Release the call."""
        assert self._let_go is not None
        self._let_go()

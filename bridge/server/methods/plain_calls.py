"""Methods that run a function: a tool's, a resource's or a prompt's; without a task of their own if it is plain.

A plain function runs in the event loop, without the objects of a request and a result.

start_plain ─┬─> bytes     the function has ended without waiting
             ╰─> None      it waits, or was not started: `call_plain` continues, or `run` if it has a context
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import anyio

from bridge.protocol.messages import result_message
from bridge.server.failures import reported
from bridge.server.methods.method import Method, Written
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy, result_of_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.server.core import ServerCore
    from bridge.server.methods.method import PlainRequest
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.executors import FunctionExecutor
    from bridge.types import Json, Step


class PlainCalls(Method):
    """Base of the methods that run functions; `PlainRequest.tool` is set for a plain one, if `ServerCore.is_plain`."""

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._running = core.running

    @property
    @abstractmethod
    def _policy(self) -> ExecutionPolicy:
        """The policy of its calls."""

    @abstractmethod
    def _write(self, request: PlainRequest, result: ToolExecutionResult, write: Callable[[Json], Written]) -> Written:
        """Write a result; raises `ProtocolError` if the answer is an error."""

    @abstractmethod
    def _run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Run a request that was not started; see `run`."""

    def _reported(self, request: PlainRequest, error: BaseException) -> BaseException:
        """Return the error to raise for one that is not a result."""
        assert request.tool is not None, "it was planned"
        return reported(request.tool.name, error, self._running)

    def run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Run the function, or continue it."""
        if request.started is None:
            return self._run(request, context, write)
        return self._resume(request, context, write, request.started)

    def start_plain(self, request: PlainRequest, step: Step) -> bytes | None:
        """Start the function."""
        context = request.context
        executor: FunctionExecutor = request.tool.executor  # type: ignore[union-attr,assignment]  # of a plain tool
        if not self._running.has_room(self._core.plain_places) or (
            context is not None and self._core.memory_id_of is not None
        ):
            return None
        try:
            work = executor.start(request.arguments, context)
            request.started = None if work is None else step(work)
        except StopIteration as end:
            value = end.value
            try:
                result = executor.write_json(value)
            except Exception:  # noqa: BLE001 - raised again by what continues the call
                result = b""
            if result and isinstance(result, bytes):
                return result_message(request.id, b"{%b%b}" % (result, request.ending))
            request.started = _ended(value)
        except BaseException as error:  # noqa: BLE001 - as above
            request.started = _ended(None, error)
        return None

    async def call_plain(self, request: PlainRequest, account: str) -> bytes:
        """Run the function without a context, or continue it."""
        started, executor = request.started, _executor_of(request)
        if started is None and not self._running.has_room(self._core.plain_places):
            return await self._run(request, InvocationContext(account=account), request.write)
        try:
            if started is None:
                result = await executor.execute_plain(request.arguments, account)
            else:
                result = executor.write_json(await started)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(request, raised, request.write)
        if isinstance(result, bytes):
            return b"{%b%b}" % (result, request.ending)
        return self._write(request, result, request.write)

    async def _resume(
        self,
        request: PlainRequest,
        context: InvocationContext,
        write: Callable[[Json], Written],
        started: Awaitable[Any],
    ) -> Written:
        """Continue a function with a context."""
        try:
            result = _executor_of(request).write(await started)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(request, raised, write, context)
        return self._write(request, result, write)

    async def _failed(
        self,
        request: PlainRequest,
        raised: BaseException,
        write: Callable[[Json], Written],
        context: InvocationContext | None = None,
    ) -> Written:
        """Write the result of a function that has raised an exception, or raise the error to answer."""
        assert request.tool is not None, "it was planned"
        try:
            result = await result_of_failure(raised, request.tool, request.arguments, self._policy)
        except BaseException as error:  # noqa: BLE001 - as by `ServerCore.call`
            if context is not None and isinstance(error, anyio.get_cancelled_exc_class()):
                context.cancel()
            raise self._reported(request, error) from None
        return self._write(request, result, write)


def _executor_of(request: PlainRequest) -> FunctionExecutor:
    assert request.tool is not None, "it was planned"
    return request.tool.executor  # type: ignore[return-value]  # of a plain tool


async def _ended(value: Any, error: BaseException | None = None) -> Any:
    """Return the value of a coroutine that has ended, or raise its error."""
    if error is not None:
        raise error
    return value

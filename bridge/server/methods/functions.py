"""Methods that run a function: a tool's, a resource's or a prompt's; in the turn in which its request is read.

start ─┬─> bytes     the function has ended without waiting
       ╰─> None      it waits, or was not started: `run` continues it, or `run_without_context`
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import anyio

from bridge.protocol.messages import result_message
from bridge.server.channel import context_of
from bridge.server.failures import reported
from bridge.server.methods.method import Method, Written
from bridge.tools.context import InvocationContext
from bridge.tools.execution import ExecutionPolicy, result_of_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.executors import FunctionExecutor
    from bridge.types import Json, Step


class FunctionMethod(Method):
    """Base of the methods that run functions.

    `ServedExchange.tool` is set for a function that nothing limits or observes, if `ServerCore.is_plain`.
    """

    may_ask = True

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._running = core.running

    @property
    @abstractmethod
    def _policy(self) -> ExecutionPolicy:
        """The policy of its calls."""

    @abstractmethod
    def _write(
        self, exchange: ServedExchange, result: ToolExecutionResult, write: Callable[[Json], Written]
    ) -> Written:
        """Write a result; raises `ProtocolError` if the answer is an error."""

    @abstractmethod
    def _run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Run a request that was not started; see `run`."""

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        """Return the error to raise for one that is not a result."""
        assert exchange.tool is not None, "it was planned"
        return reported(exchange.tool.name, error, self._running)

    def run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Run the function, or continue it."""
        if exchange.started is None:
            return self._run(exchange, context, write)
        return self._resume(exchange, context, write, exchange.started)

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:
        """Start the function, if nothing limits or observes it."""
        if exchange.tool is None or not self._running.has_room(self._core.plain_places):
            return None
        if not exchange.takes_context:
            context = None
        elif self._core.memory_id_of is not None:
            return None
        else:
            context = context_of(exchange)
            if self._core.lifespan is not None:
                context = context.within(self._core.lifespan)
        executor: FunctionExecutor = exchange.tool.executor  # type: ignore[assignment]  # of a function
        try:
            work = executor.start(exchange.arguments, context)
            exchange.started = None if work is None else step(work)
        except StopIteration as end:
            value = end.value
            try:
                result = executor.write_json(value)
            except Exception:  # noqa: BLE001 - raised again by what continues the call
                result = b""
            if result and isinstance(result, bytes):
                return result_message(exchange.id, b"{%b%b}" % (result, exchange.ending))
            exchange.started = _ended(value)
        except BaseException as error:  # noqa: BLE001 - as above
            exchange.started = _ended(None, error)
        return None

    async def run_without_context(self, exchange: ServedExchange) -> bytes:
        """Run the function without a context, or continue it."""
        started, executor, account = exchange.started, _executor_of(exchange), exchange.origin.account
        if started is None and not self._running.has_room(self._core.plain_places):
            return await self._run(exchange, InvocationContext(account=account), exchange.write)
        try:
            if started is None:
                result = await executor.execute_plain(exchange.arguments, account)
            else:
                result = executor.write_json(await started)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(exchange, raised, exchange.write)
        if isinstance(result, bytes):
            return b"{%b%b}" % (result, exchange.ending)
        return self._write(exchange, result, exchange.write)

    async def _resume(
        self,
        exchange: ServedExchange,
        context: InvocationContext,
        write: Callable[[Json], Written],
        started: Awaitable[Any],
    ) -> Written:
        """Continue a function with a context."""
        try:
            result = _executor_of(exchange).write(await started)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(exchange, raised, write, context)
        return self._write(exchange, result, write)

    async def _failed(
        self,
        exchange: ServedExchange,
        raised: BaseException,
        write: Callable[[Json], Written],
        context: InvocationContext | None = None,
    ) -> Written:
        """Write the result of a function that has raised an exception, or raise the error to answer."""
        assert exchange.tool is not None, "it was planned"
        try:
            result = await result_of_failure(raised, exchange.tool, exchange.arguments, self._policy)
        except BaseException as error:  # noqa: BLE001 - as by `ServerCore.call`
            if context is not None and isinstance(error, anyio.get_cancelled_exc_class()):
                context.cancel()
            raise self._reported(exchange, error) from None
        return self._write(exchange, result, write)


def _executor_of(exchange: ServedExchange) -> FunctionExecutor:
    assert exchange.tool is not None, "it was planned"
    return exchange.tool.executor  # type: ignore[return-value]  # of a function


async def _ended(value: Any, error: BaseException | None = None) -> Any:
    """Return the value of a coroutine that has ended, or raise its error."""
    if error is not None:
        raise error
    return value

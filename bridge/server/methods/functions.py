"""Methods that run a function: a tool's, a resource's or a prompt's; in the turn in which its request is read.

start ─┬─> bytes     the function has ended without waiting
       ╰─> None      it waits, or was not started: `run` continues it
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json

from bridge.protocol.messages import result_message
from bridge.server.channel import context_of
from bridge.server.failures import reported
from bridge.server.methods.method import Method
from bridge.tools.execution import ExecutionPolicy, result_of_failure
from bridge.tools.questions import InputRequired
from bridge.tools.spill.usage import UNLIMITED
from bridge.wire.tools import result_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bridge.server.core import ServerCore
    from bridge.server.exchange import ServedExchange
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.executors import FunctionExecutor
    from bridge.types import Step


class FunctionMethod(Method):
    """Base of the methods that run functions.

    `ServedExchange.tool` is set for a function that nothing limits, observes or surrounds.
    """

    may_ask = True

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._running = core.running
        self._runs_directly = core.runs_directly and not self._layers
        """True if functions that run directly may be called without `Calls.call`."""

    @property
    @abstractmethod
    def _policy(self) -> ExecutionPolicy:
        """The policy of its calls."""

    @abstractmethod
    def _name(self, exchange: ServedExchange) -> str:
        """Return the name for limits and messages."""

    @abstractmethod
    def _write(self, exchange: ServedExchange, result: ToolExecutionResult) -> bytes:
        """Write a result; raises `ProtocolError` if the answer is an error."""

    @abstractmethod
    def _run(self, exchange: ServedExchange) -> Awaitable[bytes]:
        """Run a request that was not started; see `run`."""

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        """Return the error to raise for one that is not a result."""
        assert exchange.tool is not None, "it was planned"
        return reported(exchange.tool.name, error, self._running, exchange.request_id)

    def run(self, exchange: ServedExchange) -> Awaitable[bytes]:
        """Run the function, or continue it."""
        return self._run(exchange) if exchange.started is None else self._resume(exchange, exchange.started)

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:
        """Start the function, if nothing but a caller's calls is limited, and nothing observes it.

        Raises:
            InputRequired: The function asks its client a question.
        """
        if exchange.tool is None or not self._running.has_room(self._core.max_direct_calls):
            return None
        context = None
        if exchange.takes_context:
            if self._core.memory_id_of is not None:
                return None
            context = self._core.prepared(context_of(exchange))
        executor: FunctionExecutor = exchange.tool.executor  # type: ignore[assignment]  # of a function
        try:
            work, limits = executor.start(exchange.arguments, context), self._core.call_limits
            work = work if limits is None else limits.counted(self._name(exchange), work)
            exchange.started = None if work is None else step(work)
        except StopIteration as end:
            value = end.value
        except InputRequired:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again by what continues the call
            exchange.started = _ended(None, error)
            return None
        else:
            return None
        return self._ended_at_once(exchange, executor, value)

    def _ended_at_once(self, exchange: ServedExchange, executor: FunctionExecutor, value: Any) -> bytes | None:
        """Answer with the value of a function; None if it is too long, or cannot be written as JSON directly."""
        try:
            result = executor.write_json(value)
        except Exception as error:  # noqa: BLE001 - as above
            exchange.started = _ended(None, error)
            return None
        if isinstance(result, bytes) and len(result) <= exchange.max_chars:
            if exchange.count is not None:
                exchange.count(len(result))
            return result_message(exchange.id, b"{%b%b}" % (result, exchange.ending))
        exchange.started = _ended(_Written(result))
        return None

    async def _resume(self, exchange: ServedExchange, started: Awaitable[Any]) -> bytes:
        """Continue a function that was started."""
        try:
            value = await started
            result = value.result if isinstance(value, _Written) else _executor_of(exchange).write_json(value)
        except BaseException as raised:  # noqa: BLE001 - as in `execute`
            return await self._failed(exchange, raised)
        if isinstance(result, bytes):
            if len(result) <= exchange.max_chars:
                if exchange.count is not None:
                    exchange.count(len(result))
                return b"{%b%b}" % (result, exchange.ending)
            result = result_from_wire(from_json(b"{%b}" % result))
        return self._write(exchange, result) if exchange.max_chars == UNLIMITED else await self._fit(exchange, result)

    async def _fit(self, exchange: ServedExchange, result: ToolExecutionResult) -> bytes:
        """Write the result of a tool that has a limit; a large one is kept aside (`bridge.tools.Spill`)."""
        kept, tool = self._core.kept, exchange.tool
        assert kept is not None, "there is a limit"
        assert tool is not None, "it was planned"
        return self._write(exchange, await kept.fitted(tool, result, context_of(exchange)))

    async def _failed(self, exchange: ServedExchange, raised: BaseException) -> bytes:
        """Write the result of a function that has raised an exception, or raise the error to answer."""
        assert exchange.tool is not None, "it was planned"
        try:
            context = context_of(exchange)
            result = await result_of_failure(raised, exchange.tool, exchange.arguments, self._policy, context)
        except BaseException as error:  # noqa: BLE001 - as by `Calls.call`
            if exchange.context is not None and isinstance(error, anyio.get_cancelled_exc_class()):
                exchange.context.cancel()
            raise self._reported(exchange, error) from None
        return self._write(exchange, result) if exchange.max_chars == UNLIMITED else await self._fit(exchange, result)


@dataclass(frozen=True, slots=True)
class _Written:
    """A result that was written; an iterator, for one, could not be written again."""

    result: bytes | ToolExecutionResult


def _executor_of(exchange: ServedExchange) -> FunctionExecutor:
    assert exchange.tool is not None, "it was planned"
    return exchange.tool.executor  # type: ignore[return-value]  # of a function


async def _ended(value: Any, error: BaseException | None = None) -> Any:
    """Return the value of a coroutine that has ended, or raise its error."""
    if error is not None:
        raise error
    return value

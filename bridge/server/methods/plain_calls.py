"""Calls of plain tools: functions that run in the event loop, without the objects of a request and a result.

start ─┬─> bytes     the function has ended without waiting
       ├─> the rest  of the call, for `call`, or for `resume` if it has a context
       ╰─> None      not started: `call` runs it, or `ServerCore.call` if it has a context
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from bridge.server.core import write_result
from bridge.server.failures import reported
from bridge.tools.context import InvocationContext
from bridge.tools.execution import result_of_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.core import ServerCore
    from bridge.tools.executors import FunctionExecutor
    from bridge.tools.tool import Tool
    from bridge.types import Json, Step

_Written = TypeVar("_Written")


class PlainCalls:
    """Runs calls of plain tools, if `ServerCore.is_plain`."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._running = core.running

    async def call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        account: str,
        write: Callable[[Json], bytes],
        ending: bytes,
        started: Awaitable[Any] | None = None,
    ) -> bytes:
        """Run a ``tools/call`` of a plain tool, which was checked and needs no context; return its result as JSON.

        Args:
            tool: The tool.
            arguments: Its arguments, not yet validated.
            account: As in a context.
            write: As for `ServerCore.call`.
            ending: The members that ``write`` adds, as JSON; empty for the handshake era.
            started: What `start` has returned; None if the call was not started.

        Raises:
            ProtocolError: As by `ServerCore.call`.
        """
        modern = bool(ending)
        if started is None and not self._running.has_room(self._core.plain_places):
            return await self._core.call(tool.name, arguments, InvocationContext(account=account), write, modern=modern)
        try:
            try:
                executor: FunctionExecutor = tool.executor  # type: ignore[assignment]  # of a plain tool
                if started is None:
                    result = await executor.execute_plain(arguments, account)
                else:
                    result = executor.write_json(await started)
            except BaseException as raised:  # noqa: BLE001 - as in `execute`
                result = await result_of_failure(raised, tool, arguments, self._core.policy)
        except BaseException as error:  # noqa: BLE001 - as by `ServerCore.call`
            raise reported(tool.name, error, self._running) from None
        if isinstance(result, bytes):
            return b"{%b%b}" % (result, ending)
        return write_result(tool.name, result, write, None, modern=modern)

    async def resume(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], _Written],
        started: Awaitable[Any],
        *,
        modern: bool,
    ) -> _Written:
        """Continue a call with a context; see `ServerCore.call`.

        Args:
            tool: As for `start`.
            arguments: As for `start`.
            context: As for `start`.
            write: As for `ServerCore.call`.
            started: What `start` has returned.
            modern: As for `ServerCore.call`.
        """
        try:
            try:
                executor: FunctionExecutor = tool.executor  # type: ignore[assignment]  # of a plain tool
                result = executor.write(await started)
            except BaseException as raised:  # noqa: BLE001 - as in `execute`
                result = await result_of_failure(raised, tool, arguments, self._core.policy)
            return write_result(tool.name, result, write, None, modern=modern)
        except BaseException as error:  # noqa: BLE001 - as by `ServerCore.call`
            if isinstance(error, anyio.get_cancelled_exc_class()):
                context.cancel()
            raise reported(tool.name, error, self._running) from None

    def start(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        ending: bytes,
        step: Step,
        context: InvocationContext | None = None,
    ) -> bytes | Awaitable[Any] | None:
        """Start a call of a plain tool, for `call`, or for `resume` if it has a context.

        Args:
            tool: As for `call`; it may take a context.
            arguments: As for `call`.
            ending: As for `call`.
            step: Runs the first step of a coroutine; returns the rest, or raises StopIteration with its value.
            context: The context, if the tool takes one.

        Returns:
            The result, if the call has ended; the rest of the call; None if it was not started.
        """
        executor: FunctionExecutor = tool.executor  # type: ignore[assignment]  # of a plain tool
        if not self._running.has_room(self._core.plain_places) or (
            context is not None and self._core.memory_id_of is not None
        ):
            return None
        try:
            work = executor.start(arguments, context)
            return None if work is None else step(work)
        except StopIteration as end:
            value = end.value
            try:
                result = executor.write_json(value)
            except Exception:  # noqa: BLE001 - raised again by what continues the call
                result = b""
            return b"{%b%b}" % (result, ending) if result and isinstance(result, bytes) else _ended(value)
        except BaseException as error:  # noqa: BLE001 - as above
            return _ended(None, error)


async def _ended(value: Any, error: BaseException | None = None) -> Any:
    """Return the value of a coroutine that has ended, or raise its error."""
    if error is not None:
        raise error
    return value

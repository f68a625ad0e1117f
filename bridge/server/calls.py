"""Calls: how a server runs the functions of its tools, resources and prompts, and writes their results."""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError, UnknownToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LIMIT_EXCEEDED
from bridge.server.auth.access import EVERYTHING
from bridge.server.failures import failed, reported
from bridge.server.middleware import AroundTool, unknown_run_by
from bridge.server.running_calls import RunningCalls
from bridge.tools.execution import LOCAL, execute, result_of_failure
from bridge.tools.tool import OneTool, ToolExecutionRequest, ToolExecutionResult
from bridge.types import RETRY_AFTER_META_KEY
from bridge.wire.tools import result_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.limits import Limits
    from bridge.server.limits.accounts import Accounts, CallLimits, Execute
    from bridge.server.lists.lists import Lists
    from bridge.server.results.kept_results import KeptResults
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Layer
    from bridge.tools.tool import Tool
    from bridge.tools.toolbox import ToolBox
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")
_Written = TypeVar("_Written")


class Calls:
    """Base of a server: runs functions within its limits, its policy and its middleware.

    Args:
        policy: Policy for calls and their failures; None for the default one.
        limits: Limits of each caller; None for none.
        max_calls: Maximum number of calls that run or wait; None for no maximum.
        memory_id_of: Returns the memory id of a call; None for the default one.
        beside: A server of the same process, whose callers have one account for both; None for none.
    """

    kept: KeptResults | None
    """The large results that are kept aside; None if none are."""
    lifespan: Lifespan[Any] | None
    """The lifespan whose value functions of modules without one get."""
    _around_calls: tuple[Layer, ...]
    """The middleware around calls of tools."""

    def __init__(
        self,
        *,
        policy: ExecutionPolicy | None,
        limits: Limits | None,
        max_calls: int | None,
        memory_id_of: Callable[[InvocationContext], Any] | None,
        beside: Calls | None = None,
    ) -> None:
        self.memory_id_of = memory_id_of
        self.policy = replace(policy or LOCAL, reveal_errors=False, on_unknown_tool=_raise, spill=None)
        self.producing = replace(self.policy, on_arguments_error=_raise, on_execution_error=_raise)
        """The policy of what reads a resource or renders a prompt."""
        self.running: RunningCalls = RunningCalls() if beside is None else beside.running
        """The running calls."""
        self.accounts: Accounts | None = None
        """Accounts of the callers; None without limits."""
        self.call_limits: CallLimits | None = None
        """Limits of the callers' calls; None for none."""
        self._execute: Execute = execute
        self.limits = limits  # None for none
        self._max_result_bytes = cache(limits.result_bytes_of) if limits is not None and limits.are_of_results else None
        self._counts_bytes = limits is not None and limits.are_of_bytes
        if limits is not None and limits.are_of_requests:
            from bridge.server.limits.accounts import Accounts, CallLimits  # noqa: PLC0415 - only with limits

            self.accounts = Accounts(limits) if beside is None or beside.accounts is None else beside.accounts
            if limits.are_of_calls:
                self.call_limits = CallLimits(self.accounts)
                self._execute = self.call_limits.execute
        self.runs_directly = self.policy.runs_directly and self._max_result_bytes is None
        """True if tools that run directly may be called without `call`; see `bridge.server.methods.functions`."""
        # Up to half of the maximum, `bounded` refuses nobody.
        self.max_direct_calls = sys.maxsize if max_calls is None else max_calls // 2
        """Maximum running calls up to which such tools may be called without `call`."""
        if max_calls is not None:
            from bridge.server.limits.accounts import bounded  # noqa: PLC0415 - only with a maximum

            self._execute = bounded(self._execute, max_calls, self.running)

    @abstractmethod
    def lists_for(self, caller: Caller | None, *, current: bool = False) -> Lists | None:
        """Return the lists that a caller sees; None if they have to be loaded, see `CallerFeatures.of`."""

    @abstractmethod
    async def load_lists(self, context: InvocationContext) -> Lists:
        """Load the lists that the caller of a request sees."""

    async def lists_of(self, context: InvocationContext) -> Lists:
        """Return the lists that the caller of a request sees, loaded if they have to be."""
        return self.lists_for(context.caller) or await self.load_lists(context)

    async def produce(
        self, tool: Tool, request: ToolExecutionRequest, context: InvocationContext, *, is_known: bool = True
    ) -> ToolExecutionResult:
        """Run what reads, renders or completes, within the limits of calls.

        Args:
            tool: Runs it.
            request: Its arguments.
            context: Context of the request.
            is_known: False for a name that does not exist, which limits must not store.

        Raises:
            ArgumentsError: The arguments are invalid.
            ResourceNotFoundError: The function says so.
            ToolError: The function failed with a message for the client.
            ToolTimeoutError: It took too long.
            ProtocolError: It failed otherwise, which has been logged.
        """
        self.running.check_open(request.name)
        run = self._execute if is_known else execute
        try:
            result = await run(OneTool(tool), request, self.prepared(context), self.producing)
        except (ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError, ProtocolError):
            raise
        except BaseException as error:  # noqa: BLE001 - answered without its text
            raise reported(request.name, error, self.running, context.request_id) from None
        if result.is_error:
            seconds = result.metadata.get(RETRY_AFTER_META_KEY)
            if seconds is None:
                raise ProtocolError(INTERNAL_ERROR, result.text)
            raise ProtocolError(LIMIT_EXCEEDED, result.text, {"retryAfterSeconds": seconds})
        return result

    def max_result_bytes(self, name: str) -> int | None:
        """Return the maximum length of the result of a name; None for no limit."""
        return None if self._max_result_bytes is None else self._max_result_bytes(name)

    def write_produced(
        self, name: str, wire: Json, write: Callable[[Json], _Written], request_id: str | None
    ) -> _Written:
        """Write the result of `produce`, given as JSON, and count its bytes; the arguments are as for `write_result`.

        Raises:
            ProtocolError: It is over the limit of the results of this name, or cannot be sent.
        """
        max_bytes = self.max_result_bytes(name)
        plain = wire if max_bytes is None else dict(wire)  # writing may add members
        try:
            written = write(wire)
        except Exception as error:  # noqa: BLE001 - answered without its text
            raise failed(name, error, request_id) from None
        if max_bytes is not None:
            from bridge.server.limits.accounts import excess_bytes  # noqa: PLC0415 - only with limits

            if (length := excess_bytes(max_bytes, plain, written)) is not None:
                raise ProtocolError(INTERNAL_ERROR, excess_message(name, length, max_bytes))
        return self.counted(written)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], _Written],
        *,
        modern: bool,
        access: Access = EVERYTHING,
        older: Tool | None = None,
        is_kept_whole: bool = False,
    ) -> _Written:
        """Run a ``tools/call``.

        Args:
            name: The tool's name.
            arguments: Its arguments, not yet validated.
            context: The context of the call; its memory id is set here.
            write: Writes the result, given as JSON. If it raises, the tool's result cannot be sent.
            modern: True for a client of version 2026-07-28. Older versions allow only objects as structured content; of
                other types it is left out.
            access: Permissions of the caller; a tool outside of them is unknown.
            older: The tool, if it is an older version of the one that is listed.
            is_kept_whole: True to keep no large result aside.

        Raises:
            ProtocolError: The tool is unknown, or the call failed outside of the tool, which has been logged.
            InputRequired: The tool asked a question that needs another round.
        """
        self.running.check_open(name)
        tools = (await self.lists_of(context)).tools.of(access).tools
        _check_scopes(name, tools, access)
        try:
            context = self.prepared(context)
            request, tool = ToolExecutionRequest(name, arguments), older or tools.find(name)
            if self._around_calls and (tool is not None or access.sees_all_of(name)):
                result = await self._call_within_middleware(request, tool, tools, access, context)
            elif tool is not None and self._runs_without_limits(tool, context):
                try:
                    result = await tool.executor.execute(request, context)
                except BaseException as raised:  # noqa: BLE001 - as in `execute`
                    result = await result_of_failure(raised, tool, arguments, self.policy, context)
            else:
                among = tools if older is None else OneTool(older)
                result = await self._execute(among, request, context, self.policy)
            if self.kept is not None and tool is not None and not is_kept_whole:
                result = await self.kept.fitted(tool, result, context)
            if self._max_result_bytes is None:
                return write_result(name, result, write, None, context.request_id, modern=modern)
            max_bytes = self._max_result_bytes(name)
            written = write_result(name, result, write, max_bytes, context.request_id, modern=modern)
            return written if is_kept_whole else self.counted(written)  # no client gets the results of a script's calls
        except BaseException as error:  # noqa: BLE001 - answered without its text
            if isinstance(error, anyio.get_cancelled_exc_class()):
                context.cancel()
            if isinstance(error, UnknownToolError) and error.name == name and name not in tools:
                raise ProtocolError(INVALID_PARAMS, str(error)) from None
            raise reported(name, error, self.running, context.request_id) from None

    def counted(self, written: _Written) -> _Written:
        """Count the bytes of a result of the running request, if callers or teams have a limit; return the result."""
        if self._counts_bytes and self.accounts is not None:
            from bridge.server.limits.accounts import count_result  # noqa: PLC0415 - only with limits

            count_result(self.accounts, written)
        return written

    async def _call_within_middleware(
        self,
        request: ToolExecutionRequest,
        tool: Tool | None,
        tools: ToolBox,
        access: Access,
        context: InvocationContext,
    ) -> ToolExecutionResult:
        executor = AroundTool(self._around_calls, tools, tool, lambda name: _check_scopes(name, tools, access))
        if tool is None:  # callers choose any number of names, which limits must not store
            return await execute(OneTool(unknown_run_by(executor)), request, context, self.policy)
        return await self._execute(OneTool(tool.run_by(executor)), request, context, self.policy)

    def prepared(self, context: InvocationContext) -> InvocationContext:
        """Return the context of a call with what the server adds."""
        if self.memory_id_of is not None:
            context.memory_id = self.memory_id_of(context)
        return context if self.lifespan is None else context.within(self.lifespan)

    def _runs_without_limits(self, tool: Tool, context: InvocationContext) -> bool:
        """True if nothing limits, changes or observes a call, so that its executor may run without `execute`."""
        return (
            self.runs_directly
            and self.call_limits is None
            and tool.is_unlimited
            and context.deadline is None
            and self.running.has_room(self.max_direct_calls)
        )


def _check_scopes(name: str, tools: ToolBox, access: Access) -> None:
    """Refuse a call without its scope. Over HTTP, `ToolScopeGuard` has refused it before."""
    if name in tools and access.missing(name):
        raise ProtocolError(INVALID_REQUEST, f"the tool {name!r} needs a scope that was not granted")


def _raise(error: Exception, *_: object) -> str:
    raise error


def excess_message(name: str, length: int, max_bytes: int) -> str:
    """Return the error in place of a result that is too long."""
    return f"the result of {name!r} has {length} bytes, and may have {max_bytes}: ask for less"


def write_result(
    name: str,
    result: ToolExecutionResult,
    write: Callable[[Json], _Written],
    max_bytes: int | None,
    request_id: str | None,
    *,
    modern: bool,
) -> _Written:
    """Write the result of a call, or an error in its place if it cannot be sent; other arguments are those of `call`.

    Args:
        name: The tool's name.
        result: The result.
        write: Writes it.
        max_bytes: Its maximum length; None for no limit.
        request_id: Id of the request in records; None for none.
        modern: True for a client of version 2026-07-28.
    """
    try:
        wire = _of_era(result, modern=modern)
        if max_bytes is None:
            return write(wire)
        from bridge.server.limits.accounts import excess_bytes  # noqa: PLC0415 - only with limits

        plain = dict(wire)  # writing may add members
        written = write(wire)
        if (length := excess_bytes(max_bytes, plain, written)) is None:
            return written
        message = excess_message(name, length, max_bytes)
    except Exception:
        _logger.exception("the result of the tool %r cannot be sent", name, extra={"request_id": request_id})
        message = f"the tool {name!r} failed; its server's log says why"
    return write(_of_era(ToolExecutionResult.error(message), modern=modern))


def _of_era(result: ToolExecutionResult, *, modern: bool) -> Json:
    """Return a result as JSON, in the form of its client's era."""
    wire = result_to_wire(result)
    if modern:
        wire.setdefault("resultType", "complete")  # or a task of another server
    elif not isinstance(wire.get("structuredContent", {}), dict):
        del wire["structuredContent"]
    return wire

"""Base of the methods that run the function of a resource or a prompt."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS
from bridge.server.auth.access import EVERYTHING
from bridge.server.channel import context_of
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import Target
from bridge.server.middleware import Around, run_other, unknown_run_by
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.middleware import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.feature import ServedFeature
    from bridge.server.lists.lists import Lists
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.tools.middleware import GetPromptRequest, ReadResourceRequest, Request
    from bridge.tools.tool import Tool
    from bridge.types import Feature, Json


class FeatureMethod(FunctionMethod):
    """Base of the methods that run the function of a resource or a prompt, which ``target_param`` names."""

    feature: ClassVar[Feature]
    target_param: ClassVar[str]
    caching: ClassVar[Json] = {}
    """Members of a result in the modern era, by which clients know how long they may keep it."""

    @property
    def is_served(self) -> bool:
        """True if the server has resources, or prompts."""
        return self._core.lists.of(self.feature) is not None

    def _served(self, lists: Lists | None = None) -> ServedFeature[Any, Any]:
        """Return the resources or prompts of lists, by default of those that all callers see."""
        served = (lists or self._core.lists).of(self.feature)
        assert served is not None, "it is served"
        return served

    @abstractmethod
    def _find(self, served: Any, exchange: ServedExchange) -> None:
        """Find what a request names.

        Raises:
            ProtocolError: The caller sees none, or lacks a scope for it, or there is no such version.
        """

    @abstractmethod
    def _request(self, served: Any, exchange: ServedExchange) -> GetPromptRequest | ReadResourceRequest:
        """Return the request that middleware receives."""

    @abstractmethod
    def _arguments(self, found: Any, request: Any) -> Mapping[str, Any]:
        """Return the arguments of what was found for a request that middleware has passed on."""

    @abstractmethod
    def _to_wire(self, found: Any, result: ToolExecutionResult) -> Json:
        """Convert a result; ``found`` is None if middleware has answered for what does not exist."""

    @abstractmethod
    def _described(self, key: str) -> str:
        """Return what a request is for, for messages."""

    @abstractmethod
    def _absent(self, key: str, *, modern: bool) -> ProtocolError:
        """Return the error for a function that says that there is no such resource."""

    def _find_now(self, exchange: ServedExchange) -> None:
        """Find what a request names, unless lists have to be loaded, or middleware may name another."""
        lists = None if self._layers else self._core.lists_for(exchange.origin.caller)
        if lists is not None:
            self._find(self._served(lists), exchange)

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    async def _run(self, exchange: ServedExchange) -> bytes:
        """Read the resource, or render the prompt."""
        context = context_of(exchange)
        if self._layers:
            return await self._run_within_middleware(exchange, self._served(await self._core.lists_of(context)))
        if exchange.found is None:
            self._find(self._served(await self._core.load_lists(context)), exchange)
        return await self._produce(exchange, exchange.found.tool)

    async def _run_within_middleware(self, exchange: ServedExchange, served: ServedFeature[Any, Any]) -> bytes:
        """Run middleware, which may answer for what does not exist, or pass on a request for another."""
        key, access, modern = exchange.params[self.target_param], exchange.access, exchange.modern
        found = served.find(key, access)
        if found is not None or not access.sees_all_of(key):
            found = served.required(key, access, modern=modern, meta=exchange.meta)
        exchange.found = found

        async def last(request: Request, context: InvocationContext) -> ToolExecutionResult:
            wanted = target_of(request) or ""
            if found is None or wanted != key:
                other = served.required(wanted, access, modern=modern)
                return await run_other(other.tool, self._arguments(other, request), context)
            direct = ToolExecutionRequest(found.tool.name, self._arguments(found, request))
            result: ToolExecutionResult = await found.tool.executor.execute(direct, context)
            return result

        executor = Around(self._layers, self._request(served, exchange), last)
        return await self._produce(exchange, (unknown_run_by if found is None else found.tool.run_by)(executor))

    async def _produce(self, exchange: ServedExchange, tool: Tool) -> bytes:
        """Run the function of what was found, or what takes its place, and write its result."""
        request = ToolExecutionRequest(self._name(exchange), exchange.arguments)
        is_known = exchange.found is not None
        try:
            result = await self._core.produce(tool, request, context_of(exchange), is_known=is_known)
        except (ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError) as error:
            raise self._refusal(exchange, error) or error from None
        return self._write(exchange, result)

    def _write(self, exchange: ServedExchange, result: ToolExecutionResult) -> bytes:
        wire = self._to_wire(exchange.found, result)
        if exchange.modern:
            wire |= {"resultType": "complete", **self.caching}
        return self._core.write_produced(self._name(exchange), wire, exchange.write, exchange.request_id)

    def _name(self, exchange: ServedExchange) -> str:
        """Return the name of what was found; that in the request if it does not exist."""
        found = exchange.found
        name: str = exchange.params[self.target_param] if found is None else self._served().item_of(found).name
        return name

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        return self._refusal(exchange, error) or super()._reported(exchange, error)

    def _refusal(self, exchange: ServedExchange, error: BaseException) -> ProtocolError | None:
        key = exchange.params[self.target_param]
        return refusal(error, partial(self._described, key), partial(self._absent, key, modern=exchange.modern))

    def target(
        self,
        params: Mapping[str, Any],
        access: Access = EVERYTHING,
        caller: Caller | None = None,
    ) -> Target:
        """Return the resource or prompt."""
        requested = self.target_in(params)
        served = (self._core.lists_for(caller) or self._core.lists).of(self.feature)
        found = None if served is None or requested is None else served.find(requested, access)
        if served is None or found is None:
            return Target(requested, None, None)
        item = served.item_of(found)
        return Target(requested, item.name, item.server)


def refusal(error: BaseException, what: Callable[[], str], absent: Callable[[], ProtocolError]) -> ProtocolError | None:
    """Return the error to answer if reading, rendering or completing has failed.

    Args:
        error: What was raised.
        what: Returns what was read, rendered or completed, for messages.
        absent: Returns the error for a resource that does not exist.

    Returns:
        None if the error is a bug, a question or a cancellation.
    """
    match error:
        case ProtocolError():
            return error
        case ArgumentsError():
            problems = "; ".join(map(str, error.problems))
            # Without the URI in its data, by which clients recognise a resource that does not exist.
            return ProtocolError(INVALID_PARAMS, f"invalid arguments for {what()}: {problems}")
        case ResourceNotFoundError():
            return absent()
        case ToolError() | ToolTimeoutError():
            return ProtocolError(INTERNAL_ERROR, str(error), absent().data)
        case _:
            return None

"""Requests and notifications of extensions: those of this server, and those that it passes on to others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from bridge.errors import DefinitionError, ToolError, ToolTimeoutError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.rounds import binding
from bridge.protocol.versions import INTERNAL_ERROR, METHOD_NOT_FOUND
from bridge.server.channel import context_of
from bridge.server.methods.method import Method
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.context import InvocationContext
from bridge.tools.executors import CallableExecutor
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool
from bridge.wire.extension import extensions_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from bridge.server.core import ServerCore
    from bridge.server.exchange import Origin, ServedExchange
    from bridge.types import Json
    from bridge.wire.extension import Extension

_OF_BINDING = frozenset({"_meta", "inputResponses", "requestState"})


class ExtensionMethod(Method):
    """Base of the methods of an extension that is built in."""

    extension: ClassVar[Extension]
    """The extension."""

    def plan(self, exchange: ServedExchange) -> None:
        """Check that the server has the extension, and that the client declares it if it has to."""
        if not self._core.offers(self.extension):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", self.name)
        if self.extension.needs_client and self.extension.declared_in(exchange.capabilities) is None:
            raise self.extension.missing(f"the method {self.name!r}")


class ExtensionRequests(Method):
    """Any method that is not one of the protocol's.

    Args:
        core: The server.
        methods: The methods of the protocol, which no extension may have.

    Raises:
        DefinitionError: An extension has one of them.
    """

    name = ""
    may_ask = True

    def __init__(self, core: ServerCore, methods: Collection[str] = ()) -> None:
        super().__init__(core)
        for each in extensions_of(core.features.extensions):
            if taken := sorted(each.methods.keys() & set(methods)):
                raise DefinitionError(f"the extension {each.id!r} cannot answer {taken[0]!r}, a method of the protocol")

    def serves(self, exchange: ServedExchange) -> bool:
        """True if a request may be answered, by this server or by another."""
        if self._extension_of(exchange) is not None:
            return True
        forwarded = self._core.features.forwarded
        # It is not known which tools or resources the request is about, so that access by name cannot be checked.
        return forwarded is not None and exchange.access.sees_all and forwarded.takes(exchange.params)

    def _extension_of(self, exchange: ServedExchange) -> Extension | None:
        available = self._core.extensions_for(exchange.access, modern=exchange.modern)
        return next((each for each in available if exchange.method in each.methods), None)

    def plan(self, exchange: ServedExchange) -> None:
        """Find the extension; refuse a request that nobody answers."""
        if not self.serves(exchange):
            raise ProtocolError(METHOD_NOT_FOUND, "Method not found", exchange.method)
        exchange.found = extension = self._extension_of(exchange)
        if extension is not None and extension.needs_client and extension.declared_in(exchange.capabilities) is None:
            raise extension.missing(f"the method {exchange.method!r}")

    async def run(self, exchange: ServedExchange) -> bytes:
        """Answer a request, within the limits and the time of a read."""
        extension, method, forwarded = exchange.found, exchange.method, self._core.features.forwarded
        if extension is None:
            assert forwarded is not None, "it takes the request"
            answer = partial(forwarded.answer, method, exchange.params)
        else:
            answer = partial(extension.answer, method, exchange.params)
        return await produced(self._core, exchange, answer, is_known=extension is not None)

    def bound(self, exchange: ServedExchange) -> bytes:
        """Return the digest of what a state of a request belongs to; see `Method.bound`."""
        caller = exchange.origin.caller
        params = {key: exchange.params[key] for key in exchange.params if key not in _OF_BINDING}
        return binding(exchange.method, None, params, None if caller is None else caller.name)

    def notified(self, message: Json, origin: Origin, version: str) -> None:
        """Handle a notification of a client, of which an extension of this server or of another may be."""
        features, method = self._core.features, message["method"]
        handlers = [each.notifications.get(method) for each in extensions_of(features.extensions)]
        if not any(handlers) and (features.forwarded is None or not origin.access.sees_all):
            return
        params = message.get("params") or {}
        context = InvocationContext(
            caller=origin.caller, headers=origin.texts, protocol_version=version, account=origin.account
        )
        for handler in filter(None, handlers):
            handler(params, context)
        if not any(handlers) and features.forwarded is not None:
            features.forwarded.notified(method, params, context)


async def produced(
    core: ServerCore,
    exchange: ServedExchange,
    answer: Callable[[InvocationContext], Awaitable[Json]],
    *,
    is_known: bool = True,
) -> bytes:
    """Answer a request by a function like a read, so that limits, times and errors are the same.

    Args:
        core: The server.
        exchange: The request.
        answer: Returns the result, which may be changed.
        is_known: False for a method that may not exist, which limits must not store.

    Raises:
        ProtocolError: It failed.
        InputRequired: It asked a question that needs another round.
    """
    method = exchange.method
    try:
        made = await core.produce(
            _tool_of(method, answer), ToolExecutionRequest(method), context_of(exchange), is_known=is_known
        )
    except (ToolError, ToolTimeoutError) as error:
        raise ProtocolError(INTERNAL_ERROR, str(error)) from None
    result: Json = made.value
    if exchange.modern:
        result.setdefault("resultType", "complete")
    return core.write_produced(method, result, exchange.write, exchange.request_id)


def _tool_of(method: str, answer: Callable[[InvocationContext], Awaitable[Json]]) -> Tool:
    """Return a tool that answers a method."""

    async def execute(_: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        return ToolExecutionResult((), value=await answer(context))

    return Tool(ToolSpecification(name=method), CallableExecutor(execute, method))

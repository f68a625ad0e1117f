"""``completion/complete`` (MCP 2025-11-25 and 2026-07-28, "Completion")."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bridge.errors import ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError
from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR
from bridge.server.channel import context_of
from bridge.server.methods.features import refusal
from bridge.server.methods.method import Method, optional_object, required_text
from bridge.server.middleware import run_around
from bridge.tools.calls import ToolExecutionRequest, ToolExecutionResult
from bridge.tools.completion import NO_COMPLETION, Completion
from bridge.tools.executors import CallableExecutor
from bridge.tools.middleware import CompleteRequest
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import Tool
from bridge.wire.prompts import completion_to_wire

if TYPE_CHECKING:
    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.tools.context import InvocationContext

_NAMES = {"ref/prompt": "name", "ref/resource": "uri"}


class Complete(Method):
    """Values for an argument of a prompt, or a variable of a resource template."""

    name = "completion/complete"
    hook = "complete"

    @property
    def is_served(self) -> bool:
        """True if the server has anything with arguments that could be completed."""
        return self._core.completes

    def plan(self, exchange: ServedExchange) -> None:
        """Read the reference, the argument and the arguments that are known."""
        params = exchange.params
        ref, argument = optional_object(params, "ref"), optional_object(params, "argument")
        kind = ref.get("type")
        if kind not in _NAMES:
            raise invalid_params("the 'type' of 'ref' must be 'ref/prompt' or 'ref/resource'")
        known = optional_object(optional_object(params, "context"), "arguments")
        if not all(type(each) is str for each in known.values()):
            raise invalid_params("the 'arguments' of 'context' must be texts")
        exchange.found = CompleteRequest(
            "prompts" if kind == "ref/prompt" else "resources",
            required_text(ref, _NAMES[kind]),
            required_text(argument, "name"),
            required_text(argument, "value"),
            known,
        )

    async def run(self, exchange: ServedExchange) -> bytes:
        """Complete."""
        context, complete = context_of(exchange), partial(self._complete, exchange.access)
        if self._layers:
            context = self._core.prepared(context)
            completion: Completion = await run_around(self._layers, exchange.found, context, complete)
        else:
            completion = await complete(exchange.found, context)
        wire = completion_to_wire(completion)
        return self._core.counted(exchange.write(wire | {"resultType": "complete"} if exchange.modern else wire))

    async def _complete(self, access: Access, request: CompleteRequest, context: InvocationContext) -> Completion:
        """Complete within the limits and the time of the prompt or template itself."""
        served = (await self._core.lists_of(context)).of(request.feature)
        item = None if served is None else served.completed(request.name, access)
        if item is None:
            return NO_COMPLETION
        name, argument, complete = item.name, request.argument, item.complete

        async def execute(*_: object) -> ToolExecutionResult:
            return ToolExecutionResult((), value=await complete(argument, request.value, request.arguments, context))

        def nothing() -> ProtocolError:
            return ProtocolError(INTERNAL_ERROR, f"there is nothing to complete {argument!r} of {name!r} with")

        tool = Tool(ToolSpecification(name=name), CallableExecutor(execute, name), policy=item.policy)
        try:
            completed = await self._core.produce(tool, ToolExecutionRequest(name), context)
        except (ArgumentsError, ResourceNotFoundError, ToolError, ToolTimeoutError) as error:
            raise refusal(error, partial(repr, name), nothing) or error from None
        completion: Completion = completed.value
        return completion

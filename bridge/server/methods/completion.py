"""``completion/complete`` (MCP 2025-11-25 and 2026-07-28, "Completion")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import invalid_params
from bridge.server.methods.method import Method, optional_object, required_text
from bridge.tools.completion import NO_COMPLETION
from bridge.wire.prompts import completion_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.server.exchange import ServedExchange
    from bridge.server.methods.method import Written
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_NAMES = {"ref/prompt": "name", "ref/resource": "uri"}


class Complete(Method):
    """Values for an argument of a prompt, or a variable of a resource template."""

    name = "completion/complete"

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
        exchange.found = (
            kind,
            required_text(ref, _NAMES[kind]),
            required_text(argument, "name"),
            required_text(argument, "value"),
            known,
        )

    async def run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Written:
        """Complete."""
        core, access = self._core, exchange.access
        kind, *asked = exchange.found
        features: Any = core.prompts if kind == "ref/prompt" else core.resources
        completion = NO_COMPLETION if features is None else await features.complete(*asked, context, access)
        wire = completion_to_wire(completion)
        return write(wire | {"resultType": "complete"} if exchange.modern else wire)

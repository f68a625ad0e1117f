"""``completion/complete`` (MCP 2025-11-25 and 2026-07-28, "Completion")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.server.methods.method import ERAS, Method
from bridge.tools.completion import NO_COMPLETION
from bridge.wire.prompts import completion_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_types import CompleteRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.methods.method import HandlerRequest, PlainRequest, Written
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

_COMPLETE = frozenset({"ref", "argument", "context", "_meta"})


class Complete(Method):
    """Values for an argument of a prompt, or a variable of a resource template."""

    name = "completion/complete"
    planned_in = ERAS

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        """Return the request if its parts have the types that the SDK would check."""
        params = request.params
        ref, argument, known = params.get("ref"), params.get("argument"), params.get("context", {})
        is_plain = (
            self._core.completes
            and params.keys() <= _COMPLETE
            and _are_texts(ref, {"type", "name"}, {"type", "uri"})
            and _are_texts(argument, {"name", "value"})
            and type(known) is dict
            and known.keys() <= {"arguments"}
            and _are_texts(known.get("arguments", {}))
        )
        if not is_plain:
            return None
        return (
            request if params["ref"]["type"] == ("ref/prompt" if "name" in params["ref"] else "ref/resource") else None
        )

    async def run(self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]) -> Written:
        """Complete."""
        params = request.params
        return write(await self._completed(params, context, request.access, modern=request.modern))

    def params_type(self) -> type[CompleteRequestParams] | None:
        """Return the type of the parameters: a reference, an argument and what is filled in."""
        if not self._core.completes:
            return None
        from mcp_types import CompleteRequestParams

        return CompleteRequestParams

    async def handle(self, request: HandlerRequest, params: CompleteRequestParams) -> Json:
        """Complete."""
        with request.running() as context:
            plain = params.model_dump(mode="json", by_alias=True, exclude_none=True)
            return await self._completed(plain, context, request.access, modern=request.modern)

    async def _completed(self, params: Json, context: InvocationContext, access: Access, *, modern: bool) -> Json:
        ref, argument = params["ref"], params["argument"]
        known = params.get("context", {}).get("arguments", {})
        core = self._core
        name, text = argument["name"], argument["value"]
        if ref["type"] == "ref/prompt" and core.prompts is not None:
            completion = await core.prompts.complete(ref.get("name", ""), name, text, known, context, access)
        elif ref["type"] == "ref/resource" and core.resources is not None:
            completion = await core.resources.complete(ref.get("uri", ""), name, text, known, context, access)
        else:
            completion = NO_COMPLETION
        wire = completion_to_wire(completion)
        return wire | {"resultType": "complete"} if modern else wire


def _are_texts(value: Any, *shapes: set[str]) -> bool:
    """True for an object of texts, with the members of one of the shapes."""
    return (
        type(value) is dict
        and (not shapes or any(value.keys() == shape for shape in shapes))
        and all(type(each) is str for each in value.values())
    )

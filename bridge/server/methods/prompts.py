"""``prompts/…`` (MCP 2025-11-25 and 2026-07-28, "Prompts")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR
from bridge.server.methods.features import FeatureMethod
from bridge.server.methods.method import optional_object, required_text
from bridge.server.methods.pages import PagedList
from bridge.text import clip
from bridge.tools.middleware import GetPromptRequest
from bridge.wire.prompts import messages_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.prompts.prompt import Prompt
    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.listing import Listing
    from bridge.server.lists.lists import Lists
    from bridge.server.lists.prompts import ServedPrompts
    from bridge.tools.calls import ToolExecutionResult
    from bridge.types import Json

_TEXT = frozenset({str})


class PromptsList(PagedList):
    """The list of prompts."""

    name = "prompts/list"
    hook = "list_prompts"

    def listing(self, lists: Lists, access: Access) -> Listing[Any] | None:
        """Return the prompts."""
        return None if lists.prompts is None else lists.prompts.views.of(access).lists["prompts"]


class PromptsGet(FeatureMethod):
    """The messages of a prompt."""

    name = "prompts/get"
    hook = "get_prompt"
    noun = "prompt"
    feature = "prompts"
    target_param = "name"

    def plan(self, exchange: ServedExchange) -> None:
        """Read the name and the arguments, which are texts, and find the prompt."""
        required_text(exchange.params, "name")
        arguments = exchange.arguments = optional_object(exchange.params, "arguments")
        if not _TEXT.issuperset(map(type, arguments.values())):
            raise invalid_params("the 'arguments' of a prompt must be texts")
        self._find_now(exchange)

    def _find(self, served: ServedPrompts, exchange: ServedExchange) -> None:
        name = exchange.params["name"]
        prompt = exchange.found = served.required(name, exchange.access, modern=exchange.modern, meta=exchange.meta)
        exchange.ending = prompt.ending + exchange.ending
        if prompt.runs_directly and self._runs_directly:
            exchange.tool, exchange.takes_context = prompt.tool, prompt.takes_context

    def _request(self, served: ServedPrompts, exchange: ServedExchange) -> GetPromptRequest:
        return GetPromptRequest(exchange.params["name"], exchange.arguments, revision=served.box.version)

    def _arguments(self, found: Prompt, request: GetPromptRequest) -> Mapping[str, Any]:  # noqa: ARG002 - the base's
        return request.arguments

    def _to_wire(self, found: Prompt | None, result: ToolExecutionResult) -> Json:
        return messages_to_wire(result, None if found is None else found.description)

    def _described(self, key: str) -> str:
        return f"the prompt {clip(key)!r}"

    def _absent(self, key: str, *, modern: bool) -> ProtocolError:  # noqa: ARG002 - the base's
        return ProtocolError(INTERNAL_ERROR, f"{self._described(key)} uses a resource that does not exist")

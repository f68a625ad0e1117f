"""``prompts/…`` (MCP 2025-11-25 and 2026-07-28, "Prompts")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import invalid_params
from bridge.server.auth.access import EVERYTHING
from bridge.server.channel import context_of
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import Target, optional_object, required_text
from bridge.server.methods.pages import PagedList

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.lists.listing import Listing
    from bridge.server.lists.lists import Lists
    from bridge.server.lists.prompts import ServedPrompts
    from bridge.tools.caller import Caller
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.execution import ExecutionPolicy

_TEXT = frozenset({str})


class PromptsList(PagedList):
    """The list of prompts."""

    name = "prompts/list"
    hook = "list_prompts"

    def listing(self, lists: Lists, access: Access) -> Listing[Any] | None:
        """Return the prompts."""
        return None if lists.prompts is None else lists.prompts.views.of(access).lists["prompts"]


class PromptsGet(FunctionMethod):
    """The messages of a prompt."""

    name = "prompts/get"
    hook = "get_prompt"
    noun = "prompt"
    target_param = "name"

    @property
    def is_served(self) -> bool:
        """True if the server has prompts."""
        return self._core.prompts is not None

    @property
    def _prompts(self) -> ServedPrompts:
        assert self._core.prompts is not None, "it is served"
        return self._core.prompts

    def plan(self, exchange: ServedExchange) -> None:
        """Read the name and the arguments, which are texts, and find the prompt."""
        params = exchange.params
        name, arguments = required_text(params, "name"), optional_object(params, "arguments")
        if not _TEXT.issuperset(map(type, arguments.values())):
            raise invalid_params("the 'arguments' of a prompt must be texts")
        exchange.arguments = arguments
        if self._layers:  # which may name another, so that it is looked up when it is rendered
            return
        lists = self._core.lists_for(exchange.origin.caller)
        if lists is not None:
            self._find(lists, exchange, name)

    def _find(self, lists: Lists, exchange: ServedExchange, name: str) -> None:
        assert lists.prompts is not None, "it is served"
        prompt = exchange.found = lists.prompts.required(name, exchange.access, exchange.meta)
        exchange.ending = prompt.ending + exchange.ending
        if prompt.runs_directly and self._runs_directly:
            exchange.tool, exchange.takes_context = prompt.tool, prompt.takes_context

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    async def _run(self, exchange: ServedExchange) -> bytes:
        """Render the prompt."""
        context = context_of(exchange)
        if self._layers:
            prompts = (await self._core.lists_of(context)).prompts
            assert prompts is not None, "it is served"
            return await prompts.render_within(
                self._layers,
                exchange.params["name"],
                exchange.arguments,
                context,
                exchange.write,
                access=exchange.access,
                meta=exchange.meta,
                modern=exchange.modern,
            )
        if exchange.found is None:
            self._find(await self._core.load_lists(context), exchange, exchange.params["name"])
        return await self._prompts.render(
            exchange.found, exchange.arguments, context, exchange.write, modern=exchange.modern
        )

    def _write(self, exchange: ServedExchange, result: ToolExecutionResult) -> bytes:
        return self._prompts.write(exchange.found, result, exchange.write, modern=exchange.modern)

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        refusal = self._prompts.refusal(exchange.found, error)
        return super()._reported(exchange, error) if refusal is None else refusal

    def target(
        self,
        params: Mapping[str, Any],
        access: Access = EVERYTHING,
        caller: Caller | None = None,
    ) -> Target:
        """Return the prompt."""
        requested, prompts = self.target_in(params), (self._core.lists_for(caller) or self._core.lists).prompts
        prompt = None if prompts is None or requested is None else prompts.find(requested, access)
        return Target(requested, None, None) if prompt is None else Target(requested, prompt.name, prompt.server)

"""``prompts/…`` (MCP 2025-11-25 and 2026-07-28, "Prompts")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.protocol.envelope import invalid_params
from bridge.server.auth.access import EVERYTHING
from bridge.server.methods.functions import FunctionMethod
from bridge.server.methods.method import Target, Written, optional_object, required_text
from bridge.server.methods.pages import PagedList

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.server.auth.access import Access
    from bridge.server.exchange import ServedExchange
    from bridge.server.listing import Listing
    from bridge.server.served.prompts import ServedPrompts
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.context import InvocationContext
    from bridge.tools.execution import ExecutionPolicy
    from bridge.types import Json

_TEXT = frozenset({str})


class PromptsList(PagedList):
    """The list of prompts."""

    name = "prompts/list"

    def listing(self, access: Access = EVERYTHING) -> Listing[Any] | None:
        """Return the prompts."""
        prompts = self._core.prompts
        return None if prompts is None else prompts.views.of(access).lists["prompts"]


class PromptsGet(FunctionMethod):
    """The messages of a prompt."""

    name = "prompts/get"
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
        params, core = exchange.params, self._core
        name, arguments = required_text(params, "name"), optional_object(params, "arguments")
        if not _TEXT.issuperset(map(type, arguments.values())):
            raise invalid_params("the 'arguments' of a prompt must be texts")
        prompt = self._prompts.required(name, exchange.access)
        exchange.found, exchange.arguments = prompt, arguments
        exchange.ending = prompt.ending + exchange.ending
        if prompt.is_plain and core.is_plain:
            exchange.tool, exchange.takes_context = prompt.tool, prompt.takes_context

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    def _run(
        self, exchange: ServedExchange, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Render the prompt."""
        return self._prompts.render(exchange.found, exchange.arguments, context, write, modern=exchange.modern)

    def _write(
        self, exchange: ServedExchange, result: ToolExecutionResult, write: Callable[[Json], Written]
    ) -> Written:
        return self._prompts.write(exchange.found, result, write, modern=exchange.modern)

    def _reported(self, exchange: ServedExchange, error: BaseException) -> BaseException:
        refusal = self._prompts.refusal(exchange.found, error)
        return super()._reported(exchange, error) if refusal is None else refusal

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the prompt."""
        requested, prompts = self.target_in(params), self._core.prompts
        prompt = None if prompts is None or requested is None else prompts.find(requested, access)
        return Target(requested, None, None) if prompt is None else Target(requested, prompt.name, prompt.server)

"""``prompts/…`` (MCP 2025-11-25 and 2026-07-28, "Prompts")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.server.auth.access import EVERYTHING
from bridge.server.methods.method import ERAS, Target, Written
from bridge.server.methods.pages import PagedList
from bridge.server.methods.plain_calls import PlainCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp_types import GetPromptRequestParams

    from bridge.server.auth.access import Access
    from bridge.server.listing import Listing
    from bridge.server.methods.method import HandlerRequest, PlainRequest
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


class PromptsGet(PlainCalls):
    """The messages of a prompt; plain if the prompt is known."""

    name = "prompts/get"
    planned_in = ERAS
    noun = "prompt"
    target_param = "name"

    def plan(self, request: PlainRequest) -> PlainRequest | None:
        """Return the request if it renders a known prompt."""
        params, access, core = request.params, request.access, self._core
        name, arguments, prompts = params.get("name"), params.get("arguments"), core.prompts
        members = 1 + ("arguments" in params) + ("_meta" in params)
        if prompts is None or type(name) is not str or len(params) != members:
            return None
        if arguments is not None and not (type(arguments) is dict and _TEXT.issuperset(map(type, arguments.values()))):
            return None
        prompt = prompts.find(name, access)
        if prompt is None or (access is not EVERYTHING and access.missing(name)):
            return None
        if prompt.is_plain and core.is_plain:
            request.tool, request.takes_context = prompt.tool, prompt.takes_context
        request.found, request.arguments, request.may_talk = prompt, arguments or {}, prompt.interactive
        request.ending = prompt.ending + request.ending
        return request

    @property
    def _policy(self) -> ExecutionPolicy:
        return self._core.producing

    def _run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Render the prompt."""
        assert self._core.prompts is not None
        return self._core.prompts.render(request.found, request.arguments, context, write, modern=request.modern)

    def _write(self, request: PlainRequest, result: ToolExecutionResult, write: Callable[[Json], Written]) -> Written:
        assert self._core.prompts is not None
        return self._core.prompts.write(request.found, result, write, modern=request.modern)

    def _reported(self, request: PlainRequest, error: BaseException) -> BaseException:
        assert self._core.prompts is not None
        refusal = self._core.prompts.refusal(request.found, error)
        return super()._reported(request, error) if refusal is None else refusal

    def params_type(self) -> type[GetPromptRequestParams] | None:
        """Return the type of the parameters: a name and arguments."""
        if self._core.prompts is None:
            return None
        from mcp_types import GetPromptRequestParams

        return GetPromptRequestParams

    async def handle(self, request: HandlerRequest, params: GetPromptRequestParams) -> Json:
        """Render the prompt, which may ask its client through the context."""
        assert self._core.prompts is not None
        with request.running() as context:
            prompt = self._core.prompts.required(params.name, request.access)
            return await self._core.prompts.render(prompt, params.arguments or {}, context, dict, modern=request.modern)

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target:
        """Return the prompt."""
        requested, prompts = params.get("name"), self._core.prompts
        if not isinstance(requested, str) or prompts is None:
            return Target(None, None, None)
        prompt = prompts.find(requested, access)
        return Target(requested, None, None) if prompt is None else Target(requested, prompt.name, prompt.server)

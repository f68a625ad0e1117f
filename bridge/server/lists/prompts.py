"""The prompts of one server: found by access, and rendered like tools are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, INVALID_PARAMS
from bridge.server.auth.access import EVERYTHING
from bridge.server.lists.feature import Served, check_scopes, in_version, refusal, views_of
from bridge.server.lists.listing import ListKind
from bridge.server.middleware import Around, run_other, unknown_run_by
from bridge.text import clip
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.middleware import GetPromptRequest
from bridge.wire.prompts import messages_to_wire, prompt_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.prompts.box import PromptBox
    from bridge.prompts.prompt import Prompt
    from bridge.server.auth.access import Access
    from bridge.server.lists.feature import Running
    from bridge.tools.calls import ToolExecutionResult
    from bridge.tools.completion import Completion
    from bridge.tools.context import InvocationContext
    from bridge.tools.middleware import Layer
    from bridge.types import Feature, Json

_PROMPTS: ListKind[Prompt] = ListKind(
    "prompts", iter, lambda prompt: prompt.name, lambda prompt, _: prompt_to_wire(prompt)
)


class ServedPrompts(Served):
    """The prompts of a server."""

    feature: ClassVar[Feature] = "prompts"

    def __init__(self, box: PromptBox, core: Running, page_size: int | None) -> None:
        super().__init__(core)
        self.box = box
        self.views = views_of(box, page_size, _PROMPTS)
        """The prompts by access."""

    def find(self, name: str, access: Access = EVERYTHING) -> Prompt | None:
        """Return a prompt; None if the caller sees no such prompt."""
        return self.views.of(access).box.find(name)

    def required(self, name: str, access: Access, meta: Mapping[str, Any] | None = None) -> Prompt:
        """Return a prompt.

        Args:
            name: Its name.
            access: Permissions of the caller.
            meta: ``_meta`` of a request, which may name a version.

        Raises:
            ProtocolError: The caller sees no such prompt, or lacks a scope for it, or there is no such version.
        """
        prompt = self.find(name, access)
        if prompt is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no prompt {clip(name)!r}")
        check_scopes(name, access)
        if meta and prompt.metadata:
            return in_version(prompt, self.views.of(access).box.versions_of(name), meta, f"the prompt {name!r}")
        return prompt

    async def render(
        self,
        prompt: Prompt,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], bytes],
        *,
        modern: bool,
    ) -> bytes:
        """Answer a ``prompts/get``.

        Args:
            prompt: The prompt; from `required`, or from `find` for a caller who lacks no scope.
            arguments: Its arguments, not yet validated.
            context: Context of the request.
            write: Writes the result, given as JSON.
            modern: True for a client of version 2026-07-28.

        Raises:
            ProtocolError: An argument is missing or wrong, or it cannot be rendered.
            InputRequired: The function asked a question that needs another round.
        """
        name = prompt.name
        result = await self._produced(
            prompt.tool,
            ToolExecutionRequest(name, arguments),
            context,
            lambda: f"the prompt {name!r}",
            partial(_uses_absent, name),
        )
        return self.write(prompt, result, write, modern=modern)

    async def render_within(
        self,
        layers: tuple[Layer, ...],
        name: str,
        arguments: Mapping[str, Any],
        context: InvocationContext,
        write: Callable[[Json], bytes],
        *,
        access: Access,
        meta: Mapping[str, Any],
        modern: bool,
    ) -> bytes:
        """Answer a ``prompts/get`` with middleware around it.

        Args:
            layers: The middleware, which may answer for a prompt that does not exist.
            name: Name of the prompt.
            arguments: As for `render`.
            context: As for `render`.
            write: As for `render`.
            access: Permissions of the caller.
            meta: ``_meta`` of the request, which may name a version.
            modern: As for `render`.

        Raises:
            ProtocolError: As by `render`, or there is no such prompt, or the middleware refused.
            InputRequired: As by `render`, or by the middleware.
        """
        prompt = self.find(name, access)
        if prompt is not None or not access.sees_all_of(name):
            prompt = self.required(name, access, meta)

        async def last(request: GetPromptRequest, context: InvocationContext) -> ToolExecutionResult:
            if prompt is not None and request.name == name:
                return await prompt.tool.executor.execute(ToolExecutionRequest(name, request.arguments), context)
            return await run_other(self.required(request.name, access).tool, request.arguments, context)

        executor = Around(layers, GetPromptRequest(name, arguments, revision=self.box.version), last)
        result = await self._produced(
            unknown_run_by(executor) if prompt is None else prompt.tool.run_by(executor),
            ToolExecutionRequest(name, arguments),
            context,
            lambda: f"the prompt {name!r}",
            partial(_uses_absent, name),
            is_known=prompt is not None,
        )
        return self._write(name, prompt, result, write, modern=modern)

    def write(
        self, prompt: Prompt, result: ToolExecutionResult, write: Callable[[Json], bytes], *, modern: bool
    ) -> bytes:
        """Write what was rendered; the arguments are those of `render`."""
        return self._write(prompt.name, prompt, result, write, modern=modern)

    def _write(
        self,
        name: str,
        prompt: Prompt | None,
        result: ToolExecutionResult,
        write: Callable[[Json], bytes],
        *,
        modern: bool,
    ) -> bytes:
        wire = messages_to_wire(result, None if prompt is None else prompt.description)
        if modern:
            wire["resultType"] = "complete"
        return self._core.write_produced(name, wire, write)

    def refusal(self, prompt: Prompt, error: BaseException) -> ProtocolError | None:
        """Return the error to answer if rendering has failed; None for one that is not of the prompt."""
        return refusal(error, lambda: f"the prompt {prompt.name!r}", partial(_uses_absent, prompt.name))

    async def complete(
        self, name: str, argument: str, text: str, known: Mapping[str, str], context: InvocationContext, access: Access
    ) -> Completion:
        """Return values for an argument of a prompt.

        Raises:
            ProtocolError: The caller sees no such prompt.
        """
        return await self._completed(self.required(name, access), argument, text, known, context)


def _uses_absent(prompt: str) -> ProtocolError:
    return ProtocolError(INTERNAL_ERROR, f"the prompt {prompt!r} uses a resource that does not exist")

"""Prompts of remote servers (MCP, "Prompts")."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.client.remote_feature import RemoteRenderer
from bridge.client.selection import not_as_pinned
from bridge.errors import DefinitionError
from bridge.prompts.box import PromptBox
from bridge.text import nearest
from bridge.tools.calls import ToolExecutionResult
from bridge.tools.context import InvocationContext
from bridge.tools.middleware import CompleteRequest, GetPromptRequest, around, layers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.resources import RemoteServers
    from bridge.client.tool_catalog import CatalogRules, RemoteName
    from bridge.prompts.prompt import Prompt, PromptMessage
    from bridge.tools.completion import Completion
    from bridge.tools.middleware import Middleware


class RemotePrompts(PromptBox):
    """Prompts of a provider's servers, by local name.

    They are named like tools: with several servers, the name begins with its server's. The box is filled when its
    prompts are first asked for, and follows its servers from then on.
    """

    def __init__(self, servers: RemoteServers, middleware: tuple[Middleware, ...] = ()) -> None:
        super().__init__()
        self.local: PromptBox | None = None
        """Local prompts that are used together with these; no remote prompt gets the name of one."""
        self._servers = servers
        self._around_prompts = layers_of(middleware, "get_prompt")
        self._around_completions = layers_of(middleware, "complete")
        self._refused: Mapping[str, tuple[str, str]] = {}

    async def list(self, server: str | None = None) -> tuple[Prompt, ...]:
        """Return the prompts, of one server or of all that can be reached.

        Raises:
            DefinitionError: There is no such server.
            ServerError: The server cannot be reached, or its prompts cannot be listed.
        """
        if server is None:
            await self._servers.follow("prompts")
            return tuple(self)
        await self._servers.follow("prompts", server)
        listing = self._servers.upstreams[server].lists["prompts"]
        if listing.problem is not None and not listing.is_listed:
            raise listing.problem
        return tuple(prompt for prompt in self if prompt.server == server)

    async def render(
        self, name: str, arguments: Mapping[str, str] | None = None, *, context: InvocationContext | None = None
    ) -> tuple[PromptMessage, ...]:
        """Return the messages of a prompt.

        Args:
            name: The local name.
            arguments: Its arguments.
            context: Invocation context.

        Raises:
            DefinitionError: There is no such prompt.
            PinMismatchError: The prompt differs from its pin.
            ServerError: The request failed, for example because an argument is missing.
            WireError: The response is malformed.
        """
        request = GetPromptRequest(name, arguments or {}, revision=self.version)
        result = await around(self._around_prompts, self._render)(request, context or InvocationContext())
        return tuple(result.value)

    async def _render(self, request: GetPromptRequest, context: InvocationContext) -> ToolExecutionResult:
        renderer = (await self._prompt(request.name)).renderer
        assert isinstance(renderer, RemoteRenderer)
        return ToolExecutionResult((), value=await renderer.render(request.arguments, context))

    async def complete(
        self,
        name: str,
        argument: str,
        text: str,
        arguments: Mapping[str, str] | None = None,
        *,
        context: InvocationContext | None = None,
    ) -> Completion:
        """Return values for an argument of a prompt.

        Args:
            name: The local name of the prompt.
            argument: The argument.
            text: Its text so far.
            arguments: The other arguments that are filled in.
            context: Invocation context.

        Raises:
            DefinitionError: There is no such prompt.
            ToolError: The request failed.
        """
        request = CompleteRequest("prompts", name, argument, text, arguments or {})
        complete = around(self._around_completions, self._complete)
        completion: Completion = await complete(request, context or InvocationContext())
        return completion

    async def _complete(self, request: CompleteRequest, context: InvocationContext) -> Completion:
        prompt = await self._prompt(request.name)
        return await prompt.complete(request.argument, request.value, request.arguments, context)

    def rebuild(self, rules: CatalogRules) -> Mapping[str, tuple[str, ...]]:
        """Take the prompts of all servers, with local names.

        Returns:
            For each server, the prompts that are left out because of their names, each as a sentence.
        """
        upstreams = self._servers.upstreams
        names = self._names(rules, {name: server.prompts for name, server in upstreams.items()})
        self.replace(
            replace(prompt, name=names[server.name, prompt.name])  # type: ignore[index]  # equal to a RemoteName
            for server in upstreams.values()
            for prompt in server.prompts
            if (server.name, prompt.name) in names
        )
        self._refused = {
            names[name, prompt]: (name, reason)  # type: ignore[index]  # equal to a RemoteName
            for name, server in upstreams.items()
            for prompt, reason in server.refused_prompts.items()
            if (name, prompt) in names
        }
        return {
            name: tuple(
                f"the name of the prompt {prompt.name!r} is taken or begins with another server's prefix, "
                "and prefix is 'never'"
                for prompt in server.prompts
                if (name, prompt.name) not in names
            )
            for name, server in upstreams.items()
        }

    def named_with(self, rules: CatalogRules, prompts: Mapping[str, Iterable[Prompt]]) -> tuple[Prompt, ...]:
        """Return other prompts of some servers, by server, with local names beside those of the other servers."""
        listed = {name: prompts.get(name, server.prompts) for name, server in self._servers.upstreams.items()}
        names = self._names(rules, listed)
        return tuple(
            replace(prompt, name=names[name, prompt.name])  # type: ignore[index]  # equal to a RemoteName
            for name, own in prompts.items()
            for prompt in own
            if (name, prompt.name) in names
        )

    def _names(self, rules: CatalogRules, prompts: Mapping[str, Iterable[Prompt]]) -> dict[RemoteName, str]:
        """Return the local names of prompts, by server, and of those that pins refuse."""
        upstreams = self._servers.upstreams
        return rules.prompt_names(
            {
                name: (upstreams[name].config, [*(each.name for each in own), *upstreams[name].refused_prompts])
                for name, own in prompts.items()
            },
            taken=() if self.local is None else [prompt.name for prompt in self.local],
        )

    def require_as_pinned(self, name: str) -> None:
        """Check that a prompt is not left out because of its pin.

        Raises:
            PinMismatchError: The prompt differs from its pin, or is not pinned.
        """
        if name in self._refused:
            server, reason = self._refused[name]
            raise not_as_pinned(server, f"rendering {name!r}", reason)

    async def _prompt(self, name: str) -> Prompt:
        if name not in self:
            await self._servers.follow("prompts")
        self.require_as_pinned(name)
        if (prompt := self.find(name)) is None:
            near = nearest(name, self._items)
            raise DefinitionError(f"there is no prompt {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
        return prompt

"""Toolset: the tools of a service, and which of them one invocation has at each of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.tools.context import ToolProviderRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.service.tool_search import ToolSearch
    from bridge.tools.context import InvocationContext, ToolProvider
    from bridge.tools.model import Tool, ToolSpecification


class Toolset:
    """The tools of a service.

    Args:
        tools: Those that it always has; a change of the ToolBox counts from the next invocation.
        providers: Give further tools for an invocation, or for each of its steps.
        approval: Which of them need approval.
        search: Lets the model search for tools.
        admit: Refuses a tool that the service cannot have, by raising.
    """

    def __init__(
        self,
        tools: ToolBox,
        providers: Sequence[ToolProvider] = (),
        *,
        approval: ApprovalPolicy | None = None,
        search: ToolSearch | None = None,
        admit: Callable[[Iterable[Tool]], None] = lambda _: None,
    ) -> None:
        self._tools = tools
        self._providers = tuple(providers)
        self._approval = approval
        self._admit = admit
        self.search = search
        self._fixed: tuple[ToolBox, tuple[ToolSpecification, ...]] | None = None
        tools.on_change(self._forget)
        self.fixed()

    def fixed(self) -> tuple[ToolBox, tuple[ToolSpecification, ...]]:
        """The tools of an invocation without those of providers; made once, and again after a change."""
        if self._fixed is None:
            self._fixed = self.made_with(())
        return self._fixed

    def made_with(self, provided: Iterable[Tool]) -> tuple[ToolBox, tuple[ToolSpecification, ...]]:
        """The service's own tools and others, ready to run, with their specifications.

        Raises:
            NameClashError: Two of them have one name.
            DefinitionError: One of them is not for this service.
        """
        tools = [*self._tools, *provided]
        self._admit(tools)
        if self.search is not None:
            tools.insert(0, self.search.tool(tools))
        if self._approval is not None:
            tools = list(map(self._approval.guarded, tools))
        box = ToolBox()
        box.replace(tools)
        return box, tuple(tool.specification for tool in tools)

    async def open(self, message: UserMessage, context: InvocationContext) -> OfferedTools:
        """The tools of one invocation."""
        if not self._providers:
            return OfferedTools(self, *self.fixed())
        request = ToolProviderRequest(user_message=message.content, context=context)
        once = [tool for each in self._providers if not each.is_dynamic for tool in await _provided(each, request)]
        dynamic = [each for each in self._providers if each.is_dynamic]
        return OfferedTools(self, *self.made_with(once), once=once, dynamic=dynamic, request=request)

    def _forget(self) -> None:
        self._fixed = None


class OfferedTools:
    """The tools of one invocation; what providers gave for it stays, what dynamic ones give is asked for again.

    Attributes:
        box: Those that can run now.
    """

    __slots__ = ("_dynamic", "_once", "_request", "_specifications", "_toolset", "box")

    def __init__(
        self,
        toolset: Toolset,
        box: ToolBox,
        specifications: tuple[ToolSpecification, ...],
        *,
        once: Sequence[Tool] = (),
        dynamic: Sequence[ToolProvider] = (),
        request: ToolProviderRequest | None = None,
    ) -> None:
        self.box = box
        self._toolset = toolset
        self._specifications = specifications
        self._once = once
        self._dynamic = dynamic
        self._request = request

    async def next(self, messages: Sequence[ChatMessage]) -> tuple[ToolSpecification, ...]:
        """What the model is shown in its next request.

        Args:
            messages: The request's messages.
        """
        if self._dynamic and self._request is not None:
            given = [tool for each in self._dynamic for tool in await _provided(each, self._request)]
            self.box, self._specifications = self._toolset.made_with([*self._once, *given])
        if self._toolset.search is not None:
            return self._toolset.search.shown(self.box, messages)
        return self._specifications


async def _provided(provider: ToolProvider, request: ToolProviderRequest) -> Sequence[Tool]:
    tools = await provider.provide_tools(request)
    return tuple(tools or ())

"""Toolset: the tools of a service, and which of them one invocation has at each of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.service.compensation import undoing_names
from bridge.tools.tool import ToolProviderRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.service.tool_search import ToolSearch
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool, ToolProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tools that are ready to run."""

    box: ToolBox
    """Those that the model may call."""
    undoing: ToolBox
    """Those, and the tools that undo others, which the model does not see."""
    specifications: tuple[ToolSpecification, ...]
    """What the model may be shown."""


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
        self._fixed: Offer | None = None
        tools.on_change(self._forget)
        self.fixed()

    def fixed(self) -> Offer:
        """The tools of an invocation without those of providers; made once, and again after a change."""
        if self._fixed is None:
            self._fixed = self.made_with(())
        return self._fixed

    def made_with(self, provided: Iterable[Tool]) -> Offer:
        """The service's own tools and others, ready to run.

        Raises:
            NameClashError: Two of them have one name.
            DefinitionError: One of them is not for this service, or is to be undone by a tool that is not there.
        """
        tools = [*self._tools, *provided]
        self._admit(tools)
        undoing = undoing_names(tools, may_miss=bool(self._providers))
        shown = [tool for tool in tools if tool.name not in undoing]
        if self.search is not None:
            shown.insert(0, self.search.tool(shown))
        hidden = [tool for tool in tools if tool.name in undoing]
        box = self._box(shown)
        return Offer(
            box=box,
            undoing=self._box([*shown, *hidden]) if hidden else box,
            specifications=tuple(tool.specification for tool in shown),
        )

    def _box(self, tools: Sequence[Tool]) -> ToolBox:
        box = ToolBox()
        box.replace(tools if self._approval is None else list(map(self._approval.guarded, tools)))
        return box

    async def open(self, message: UserMessage, context: InvocationContext) -> OfferedTools:
        """The tools of one invocation."""
        if not self._providers:
            return OfferedTools(self, self.fixed())
        request = ToolProviderRequest(user_message=message.content, context=context)
        once = [tool for each in self._providers if not each.is_dynamic for tool in await _provided(each, request)]
        dynamic = [each for each in self._providers if each.is_dynamic]
        return OfferedTools(self, self.made_with(once), once=once, dynamic=dynamic, request=request)

    def _forget(self) -> None:
        self._fixed = None


class OfferedTools:
    """The tools of one invocation; what providers gave for it stays, what dynamic ones give is asked for again.

    Attributes:
        offer: Those that can run now.
    """

    __slots__ = ("_dynamic", "_once", "_request", "_toolset", "offer")

    def __init__(
        self,
        toolset: Toolset,
        offer: Offer,
        *,
        once: Sequence[Tool] = (),
        dynamic: Sequence[ToolProvider] = (),
        request: ToolProviderRequest | None = None,
    ) -> None:
        self.offer = offer
        self._toolset = toolset
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
            self.offer = self._toolset.made_with([*self._once, *given])
        if self._toolset.search is not None:
            return self._toolset.search.shown(self.offer.box, messages)
        return self.offer.specifications

    @property
    def box(self) -> ToolBox:
        """Those that the model may call now."""
        return self.offer.box


async def _provided(provider: ToolProvider, request: ToolProviderRequest) -> Sequence[Tool]:
    tools = await provider.provide_tools(request)
    return tuple(tools or ())

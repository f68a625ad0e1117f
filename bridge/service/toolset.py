"""Tools of a service and of one invocation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, UnknownToolError
from bridge.service.compensation import CompensatedTool, undoing_names
from bridge.tools.checks import listed, require_callable
from bridge.tools.function import tools_found_in
from bridge.tools.tool import ReturnBehavior, ToolProviderRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.chat_model import ToolChoice
    from bridge.service.interface import ServiceMethod
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.service.skills import ServiceSkills
    from bridge.service.tool_search import ToolSearch
    from bridge.tools.context import InvocationContext
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.spill.spill import Spill
    from bridge.tools.tool import ProviderFunction, Tool, ToolProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tools that are ready to run."""

    box: ToolBox
    """Tools that the model may call."""
    undoing: ToolBox
    """The same tools, and those that undo others, which are hidden from the model."""
    specifications: tuple[ToolSpecification, ...]
    """Specifications that may be sent to the model."""
    has_undo: bool
    """True if calls of some of the tools can be undone."""
    has_immediate: bool
    """True if the results of some of the tools may be the answer."""


class Toolset:
    """The tools of a service.

    Args:
        tools: Source of the tools; changes of a ToolBox apply from the next invocation on.
        providers: Provide further tools per invocation, or per model request.
        methods: The service's methods.
        approval: Policy for calls that need approval.
        search: Lets the model search for tools.
        spill: Keeps large results aside; by default one that keeps only those of tools with ``spill_chars``.
        skills: The skills, which the model reads with a tool; None for none.

    Raises:
        DefinitionError: A tool or provider is invalid, or a method cannot return a tool's result.
        NameClashError: Two tools have the same name.
    """

    def __init__(
        self,
        tools: object = (),
        providers: Iterable[ToolProvider | ProviderFunction] = (),
        methods: Iterable[ServiceMethod] = (),
        *,
        approval: ApprovalPolicy | None = None,
        search: ToolSearch | None = None,
        spill: Spill | None = None,
        skills: ServiceSkills | None = None,
    ) -> None:
        self._tools, found = _sources(tools)
        self._providers = (*found, *listed(providers, "tool_providers", "a ToolProvider"))
        for provider in self._providers:
            if not hasattr(provider, "provide_tools") or isinstance(provider, type):
                require_callable(
                    provider, 1, "an item of tool_providers without provide_tools", "the ToolProviderRequest"
                )
        self._may_change = bool(self._providers) or isinstance(tools, ToolBox)
        self._methods = tuple(methods)
        self._approval = approval
        self.search = search
        self.skills = skills
        self.spill = spill
        """Keeps large results aside; None if no tool can have such results."""
        if spill is None and (self._may_change or any(_spills(tool) for tool in self._tools)):
            from bridge.tools.spill.spill import Spill  # noqa: PLC0415 - only if it may be needed

            self.spill = Spill()
        self._reader: Tool | None = None
        self._fixed: tuple[int, Offer] | None = None
        self.fixed()

    def check_choice(self, choice: ToolChoice | None) -> None:
        """Refuse the choice of a tool that the service cannot have."""
        if choice is not None and choice.tool_name is not None and not self._may_change:
            try:
                self.fixed().box.get(choice.tool_name)
            except UnknownToolError as error:
                raise DefinitionError(f"parameters choose a tool that the service does not have: {error}") from error

    def fixed(self) -> Offer:
        """Return the tools of an invocation without providers; cached until the ToolBox changes."""
        version = self._tools.version
        if self._fixed is None or self._fixed[0] != version:
            self._fixed = version, self.made_with((), may_miss=bool(self._providers))
        return self._fixed[1]

    def made_with(self, provided: Iterable[Tool], *, may_miss: bool = False) -> Offer:
        """Combine the service's tools with provided ones; ``may_miss`` accepts that tools for undo are still missing.

        Raises:
            NameClashError: Two tools have the same name.
            DefinitionError: A tool cannot be used by this service, or a tool that it needs for undo is missing.
        """
        tools = [*self._tools, *provided]
        self._refuse_immediate(tools)
        undoing = undoing_names(tools, may_miss=may_miss)
        shown = [tool for tool in tools if tool.name not in undoing]
        if self.spill is not None and self.spill.mode == "keep" and (self.spill.chars or any(map(_spills, tools))):
            shown.append(self._read_tool(self.spill))
        if self.skills is not None:
            shown.append(self.skills.tool)
        if self.search is not None:
            shown.insert(0, self.search.tool(shown))
        hidden = [tool for tool in tools if tool.name in undoing]
        box = self._box(shown)
        return Offer(
            box=box,
            undoing=self._box([*shown, *hidden]) if hidden else box,
            specifications=tuple(tool.specification for tool in shown),
            has_undo=any(isinstance(tool, CompensatedTool) for tool in shown),
            has_immediate=any(tool.return_behavior is not ReturnBehavior.TO_LLM for tool in shown),
        )

    def _read_tool(self, spill: Spill) -> Tool:
        """Return the tool that reads large results; the same for all invocations."""
        if self._reader is None:
            from bridge.tools.spill.reading import read_tool  # noqa: PLC0415 - as above

            self._reader = read_tool(spill)
        return self._reader

    def _refuse_immediate(self, tools: Iterable[Tool]) -> None:
        """Reject tools whose result is the answer if a method cannot return it."""
        for tool in tools:
            if tool.return_behavior is ReturnBehavior.TO_LLM:
                continue
            for method in self._methods:
                if not method.holds_immediate:
                    raise DefinitionError(
                        f"the result of the tool {tool.name!r} from {tool.source} may be the answer "
                        f"({tool.return_behavior.name}), which {method.source} cannot return; let it return Result[…] "
                        "or TokenStream"
                    )

    def _box(self, tools: Sequence[Tool]) -> ToolBox:
        box = ToolBox()
        box.replace(tools if self._approval is None else list(map(self._approval.guarded, tools)))
        return box

    async def open(self, message: UserMessage, context: InvocationContext) -> OfferedTools:
        """Return the tools of one invocation."""
        if not self._providers:
            return OfferedTools(toolset=self, offer=self.fixed())
        request = ToolProviderRequest(user_message=message, context=context)
        dynamic = [provider for provider in self._providers if getattr(provider, "is_dynamic", False)]
        once = await _provided([provider for provider in self._providers if provider not in dynamic], request)
        return OfferedTools(
            toolset=self,
            offer=self.made_with(once, may_miss=bool(dynamic)),
            once=once,
            dynamic=dynamic,
            request=request,
        )


@dataclass(slots=True, kw_only=True)
class OfferedTools:
    """Tools of one invocation; dynamic providers are called again before each model request."""

    toolset: Toolset
    offer: Offer
    """The tools available now."""
    once: Sequence[Tool] = ()
    """Tools of the providers that are called once."""
    dynamic: Sequence[ToolProvider | ProviderFunction] = ()
    request: ToolProviderRequest | None = None

    async def refresh(self) -> None:
        """Call the dynamic providers again; before this, their tools are not among those of `offer`."""
        if self.request is not None and self.dynamic:
            self.offer = self.toolset.made_with([*self.once, *await _provided(self.dynamic, self.request)])

    async def next(self, messages: Sequence[ChatMessage]) -> tuple[ToolSpecification, ...]:
        """Return the specifications for the next model request."""
        await self.refresh()
        if self.toolset.search is not None:
            return self.toolset.search.shown(self.offer.box, messages)
        return self.offer.specifications


def _spills(tool: Tool) -> bool:
    return tool.policy.spill_chars is not None


def _sources(tools: object) -> tuple[ToolBox, list[Any]]:
    """Divide the service's own tools from the providers among them, such as those of MCP servers."""
    if isinstance(tools, ToolBox):
        return tools, []
    if isinstance(tools, Mapping):
        return ToolBox(tools) if tools else ToolBox(), []
    sources = list(tools) if isinstance(tools, list | tuple | set | frozenset) else [tools]
    providers = [source for source in sources if hasattr(source, "provide_tools")]
    return ToolBox(*(source for source in sources if not hasattr(source, "provide_tools"))), providers


async def _provided(
    providers: Iterable[ToolProvider | ProviderFunction], request: ToolProviderRequest
) -> Sequence[Tool]:
    provided: list[Tool] = []
    for provider in providers:
        provide: Any = getattr(provider, "provide_tools", provider)
        tools = provide(request)
        if inspect.isawaitable(tools):
            tools = await tools
        provided += () if tools is None else tools_found_in(tools)
    return provided

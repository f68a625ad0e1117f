"""Tools of a service and of one invocation, and tool search.

With a tool search, requests contain the search tool, selected tools and tools found earlier, instead of all
definitions. A tool counts as found while the message that found it is within the memory's window.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import ToolError
from bridge.service.messages import ToolExecutionResultMessage
from bridge.service.tool_calls import undoing_names
from bridge.tools.schema.json_schema import JsonObjectSchema
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import Tool, ToolExecutionResult, ToolProviderRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.service.approval import ApprovalPolicy
    from bridge.service.messages import ChatMessage, UserMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest, ToolProvider

_NAME_WEIGHT = 3.0

_MIN_STEM_CHARS = 3

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")

SearchStrategy = Callable[[str, Sequence[ToolSpecification]], Sequence[str]]
"""Returns the names of the tools that match a query, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tools that are ready to run."""

    box: ToolBox
    """Tools that the model may call."""
    undoing: ToolBox
    """The same tools, and those that undo others, which are hidden from the model."""
    specifications: tuple[ToolSpecification, ...]
    """Specifications that may be sent to the model."""


class Toolset:
    """The tools of a service.

    Args:
        tools: The service's tools; changes of the ToolBox apply from the next invocation on.
        providers: Provide further tools per invocation, or per model request.
        approval: Policy for calls that need approval.
        search: Lets the model search for tools.
        admit: Raises for tools that the service cannot use.
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
        self._check = admit
        self.search = search
        self._fixed: Offer | None = None
        tools.on_change(self._forget)
        self.fixed()

    def fixed(self) -> Offer:
        """Return the tools of an invocation without providers; cached until the ToolBox changes."""
        if self._fixed is None:
            self._fixed = self.made_with(())
        return self._fixed

    def made_with(self, provided: Iterable[Tool]) -> Offer:
        """Combine the service's tools with provided ones.

        Raises:
            NameClashError: Two tools have the same name.
            DefinitionError: A tool cannot be used by this service, or a tool that it needs for undo is missing.
        """
        tools = [*self._tools, *provided]
        self._check(tools)
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
        """Return the tools of one invocation."""
        if not self._providers:
            return OfferedTools(self, self.fixed())
        request = ToolProviderRequest(user_message=message.content, context=context)
        once = [
            tool
            for provider in self._providers
            if not provider.is_dynamic
            for tool in await _provided(provider, request)
        ]
        dynamic = [provider for provider in self._providers if provider.is_dynamic]
        return OfferedTools(self, self.made_with(once), once=once, dynamic=dynamic, request=request)

    def _forget(self) -> None:
        self._fixed = None


class OfferedTools:
    """Tools of one invocation; dynamic providers are called again before each model request.

    Attributes:
        offer: The tools available now.
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
        """Return the specifications for the next model request.

        Args:
            messages: Messages of the request.
        """
        if self._dynamic and self._request is not None:
            provided = [tool for provider in self._dynamic for tool in await _provided(provider, self._request)]
            self.offer = self._toolset.made_with([*self._once, *provided])
        if self._toolset.search is not None:
            return self._toolset.search.shown(self.offer.box, messages)
        return self.offer.specifications

    @property
    def box(self) -> ToolBox:
        """Tools that the model may call now."""
        return self.offer.box


async def _provided(provider: ToolProvider, request: ToolProviderRequest) -> Sequence[Tool]:
    tools = await provider.provide_tools(request)
    return tuple(tools or ())


def match_words(query: str, tools: Sequence[ToolSpecification]) -> list[str]:
    """Rank tools by words shared with the query; rare words count more, and words of the name three times."""
    indexed = [(tool.name, _words_of(tool)) for tool in tools]
    frequency = Counter(word for _, words in indexed for word in words)
    scored: list[tuple[float, int, str]] = []
    for name, words in indexed:
        score = math.inf if query.strip() == name else 0.0
        for query_word in set(_words(query)):
            score += max(
                (
                    weight * _rarity(frequency[word], len(indexed))
                    for word, weight in words.items()
                    if _matches(query_word, word)
                ),
                default=0.0,
            )
        if score > 0:
            scored.append((-score, len(scored), name))
    return [name for _, _, name in sorted(scored)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """Lets the model search for tools instead of receiving all definitions."""

    strategy: SearchStrategy = match_words
    max_results: int = 10
    """Maximum number of tools per search."""
    always: Callable[[Tool], bool] = lambda _: False
    """Returns True for tools that are always sent to the model."""
    tool_name: str = "search_tools"

    def tool(self, tools: Iterable[Tool]) -> Tool:
        """Create the search tool for these tools."""
        specifications = tuple(tool.specification for tool in tools)
        specification = ToolSpecification(
            name=self.tool_name,
            description="Find further tools by what they do. Those that are found can be called afterwards.",
            parameters=JsonObjectSchema().string("query", "What the tool should do.").required("query").build(),
            annotations=ToolAnnotations(read_only=True, idempotent=True),
        )
        return Tool(specification, _Search(self, specifications), interactive=False, source="the tool search")

    def shown(self, tools: Iterable[Tool], messages: Iterable[ChatMessage]) -> tuple[ToolSpecification, ...]:
        """Return the specifications to send to the model after these messages."""
        found_names = {name for message in messages for name in self._found_in(message)}
        return tuple(
            tool.specification
            for tool in tools
            if tool.name == self.tool_name or tool.name in found_names or self.always(tool)
        )

    def _found_in(self, message: ChatMessage) -> list[str]:
        if not isinstance(message, ToolExecutionResultMessage) or message.tool_name != self.tool_name:
            return []
        try:
            return [tool["name"] for tool in json.loads(message.text)]
        except (ValueError, TypeError, KeyError):  # an error message, or text in another format
            return []


class _Search:
    """Executor of the search tool."""

    __slots__ = ("_search", "_specifications")

    def __init__(self, search: ToolSearch, specifications: Sequence[ToolSpecification]) -> None:
        self._search = search
        self._specifications = specifications

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:  # noqa: ARG002 - the protocol's
        query = _query_of(request)
        names = self._search.strategy(query, self._specifications)[: self._search.max_results]
        if not names:
            return ToolExecutionResult.of_text(f"no tool fits {query!r}; use other words")
        described = {specification.name: specification.description for specification in self._specifications}
        matches = [{"name": name, "description": described.get(name)} for name in names]
        return ToolExecutionResult.of_text(json.dumps(matches, ensure_ascii=False))


def _query_of(request: ToolExecutionRequest) -> str:
    arguments: Any = request.arguments
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ToolError("query: should be text that says what the tool should do")
    return query


def _words_of(tool: ToolSpecification) -> Mapping[str, float]:
    properties = tool.parameters.get("properties")
    names = properties if isinstance(properties, dict) else ()  # remote schemas are not validated
    rest = " ".join([tool.title or "", tool.description or "", *names])
    return dict.fromkeys(_words(rest), 1.0) | dict.fromkeys(_words(tool.name), _NAME_WEIGHT)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _rarity(frequency: int, total: int) -> float:
    return math.log(1 + total / frequency)


def _matches(query_word: str, word: str) -> bool:
    """Return True for equal words, or if one is a prefix of the other: ``booking`` and ``bookings``."""
    if query_word == word:
        return True
    short, long = sorted((query_word, word), key=len)
    return len(short) >= _MIN_STEM_CHARS and long.startswith(short)

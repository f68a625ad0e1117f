"""Tools of a service and of one invocation; tool search.

Toolset: the tools of a service, and which of them one invocation has at each of its steps.

Tool search: one tool that finds tools, instead of hundreds of definitions in every request.

The model is shown the search tool, the tools that are always wanted, and those that it has found. Found tools stay as
long as the message that found them is among what the model is shown: nothing else has to be remembered.
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
"""Finds the names of tools that fit a query, best first."""


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


def match_words(query: str, tools: Sequence[ToolSpecification]) -> list[str]:
    """The tools that share words with the query: rare words count more, and words of the name count three times."""
    indexed = [(tool.name, _words_of(tool)) for tool in tools]
    frequency = Counter(word for _, words in indexed for word in words)
    scored: list[tuple[float, int, str]] = []
    for name, words in indexed:
        score = math.inf if query.strip() == name else 0.0
        for wanted in set(_words(query)):
            score += max(
                (
                    weight * _rarity(frequency[word], len(indexed))
                    for word, weight in words.items()
                    if _alike(wanted, word)
                ),
                default=0.0,
            )
        if score > 0:
            scored.append((-score, len(scored), name))
    return [name for _, _, name in sorted(scored)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """Lets the model search for tools instead of showing it all of them."""

    strategy: SearchStrategy = match_words
    max_results: int = 10
    """How many tools one search finds at most."""
    always: Callable[[Tool], bool] = lambda _: False
    """Says of a tool whether it is shown without having been found."""
    tool_name: str = "search_tools"

    def tool(self, tools: Iterable[Tool]) -> Tool:
        """The tool that searches among others."""
        specifications = tuple(tool.specification for tool in tools)
        specification = ToolSpecification(
            name=self.tool_name,
            description="Find further tools by what they do. Those that are found can be called afterwards.",
            parameters=JsonObjectSchema().string("query", "What the tool should do.").required("query").build(),
            annotations=ToolAnnotations(read_only=True, idempotent=True),
        )
        return Tool(specification, _Search(self, specifications), interactive=False, source="the tool search")

    def shown(self, tools: Iterable[Tool], messages: Iterable[ChatMessage]) -> tuple[ToolSpecification, ...]:
        """What the model is shown of the tools, after these messages."""
        found = {name for message in messages for name in self._found_in(message)}
        return tuple(
            tool.specification
            for tool in tools
            if tool.name == self.tool_name or tool.name in found or self.always(tool)
        )

    def _found_in(self, message: ChatMessage) -> list[str]:
        if not isinstance(message, ToolExecutionResultMessage) or message.tool_name != self.tool_name:
            return []
        try:
            return [each["name"] for each in json.loads(message.text)]
        except (ValueError, TypeError, KeyError):  # an error's words
            return []


class _Search:
    """Runs searches."""

    __slots__ = ("_search", "_specifications")

    def __init__(self, search: ToolSearch, specifications: Sequence[ToolSpecification]) -> None:
        self._search = search
        self._specifications = specifications

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:  # noqa: ARG002 - the protocol's
        query = _query_of(request)
        names = self._search.strategy(query, self._specifications)[: self._search.max_results]
        if not names:
            return ToolExecutionResult.of_text(f"no tool fits {query!r}; use other words")
        described = {each.name: each.description for each in self._specifications}
        found = [{"name": name, "description": described.get(name)} for name in names]
        return ToolExecutionResult.of_text(json.dumps(found, ensure_ascii=False))


def _query_of(request: ToolExecutionRequest) -> str:
    arguments: Any = request.arguments
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        raise ToolError("query: should be text that says what the tool should do")
    return query


def _words_of(tool: ToolSpecification) -> Mapping[str, float]:
    properties = tool.parameters.get("properties")
    names = properties if isinstance(properties, dict) else ()  # a remote server may write anything there
    rest = " ".join([tool.title or "", tool.description or "", *names])
    return dict.fromkeys(_words(rest), 1.0) | dict.fromkeys(_words(tool.name), _NAME_WEIGHT)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _rarity(frequency: int, total: int) -> float:
    return math.log(1 + total / frequency)


def _alike(wanted: str, word: str) -> bool:
    """The same word, or one that begins with the other: ``booking`` and ``bookings``."""
    if wanted == word:
        return True
    short, long = sorted((wanted, word), key=len)
    return len(short) >= _MIN_STEM_CHARS and long.startswith(short)

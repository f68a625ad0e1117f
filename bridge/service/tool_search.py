"""Tool search: the model searches for tools instead of receiving all definitions.

    ai_service(Assistant, chat_model=model, tools=many, tool_search=ToolSearch(strategy=by_embedding(embed)))

Requests contain the search tool, tools marked with ``@tool(always_visible=True)`` and tools found earlier. A tool
counts as found while the message that found it is within the memory's window (LangChain4j's ToolSearchStrategy).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bridge.errors import ToolError
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools.checks import require_callable, require_count
from bridge.tools.schema.json_schema import JsonObjectSchema
from bridge.tools.search.ranking import Embed, ToolRanking
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.service.messages import ChatMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchRequest:
    """One search of a model."""

    query: str
    tools: Sequence[ToolSpecification]
    """Tools that can be found."""
    context: InvocationContext
    """Context of the invocation, with its memory id, parameters and caller."""
    limit: int = 10
    """Number of tools that are used; further ones are dropped."""


SearchStrategy = Callable[[ToolSearchRequest], "Sequence[str] | Awaitable[Sequence[str]]"]
"""Returns the names of the tools that match a query, best first; a synchronous or asynchronous function."""


def by_words() -> SearchStrategy:
    """Create the strategy that ranks tools by words of names, titles, descriptions and parameters.

    Words are compared by their stems; synonyms and typing errors of words that no tool has count less.
    """
    return _strategy_of(ToolRanking())


def by_embedding(
    embed: Embed, *, embed_query: Embed | None = None, min_similarity: float = 0.0, words: bool = True
) -> SearchStrategy:
    """Create a strategy that ranks tools by the similarity of embeddings and by words, fused by reciprocal rank.

    The vectors of tools are kept in memory, those of the 10,000 most recently used descriptions.

    Args:
        embed: Returns one vector for each text, from any provider or local model.
        embed_query: The same for queries, if the model distinguishes them; None for ``embed``.
        min_similarity: Minimum similarity of a tool that is found by embeddings, from -1 to 1.
        words: False to rank by embeddings alone.

    Raises:
        DefinitionError: ``embed`` is not a function of the texts, or the similarity is not between -1 and 1.
    """
    require_callable(embed, 1, "embed", "the texts")
    return _strategy_of(ToolRanking(embed, embed_query=embed_query, min_similarity=min_similarity, words=words))


def _strategy_of(ranking: ToolRanking) -> SearchStrategy:
    async def search(request: ToolSearchRequest) -> list[str]:
        ranking.update(request.tools)  # costs only what has changed since the last search
        return await ranking.search(request.query, limit=request.limit)

    return search


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """Lets the model search for tools instead of receiving all definitions.

    Raises:
        DefinitionError: A value has another type.
    """

    strategy: SearchStrategy = field(default_factory=by_words)
    """Finds tools: `by_words`, `by_embedding`, or a function of your own."""
    max_results: int = 10
    """Maximum number of tools per search."""
    always: Callable[[Tool], bool] = lambda _: False
    """Returns True for tools that are always sent to the model, besides those marked as ``always_visible``."""
    tool_name: str = "search_tools"

    def __post_init__(self) -> None:
        require_callable(self.strategy, 1, "strategy", "the ToolSearchRequest")
        require_callable(self.always, 1, "always", "the tool")
        require_count(self.max_results, "max_results")
        ToolSpecification(name=self.tool_name)

    def tool(self, tools: Iterable[Tool]) -> Tool:
        """Create the search tool for these tools."""
        specifications = tuple(tool.specification for tool in tools if not self._is_always_shown(tool))
        specification = ToolSpecification(
            name=self.tool_name,
            description="Find further tools by what they do. Those that are found can be called afterwards.",
            parameters=JsonObjectSchema().string("query", "What the tool should do.").required("query").build(),
            annotations=ToolAnnotations(read_only=True, idempotent=True),
        )
        run = partial(self._run, specifications)
        return Tool(specification, run, interactive=False, source="the tool search", always_visible=True)

    def shown(self, tools: Iterable[Tool], messages: Iterable[ChatMessage]) -> tuple[ToolSpecification, ...]:
        """Return the specifications to send to the model after these messages."""
        found_names = {name for message in messages for name in self._found_in(message)}
        return tuple(tool.specification for tool in tools if tool.name in found_names or self._is_always_shown(tool))

    async def _run(
        self, specifications: Sequence[ToolSpecification], request: ToolExecutionRequest, context: InvocationContext
    ) -> str:
        query = request.argument("query")
        if not isinstance(query, str) or not query.strip():
            raise ToolError("query: should be text that says what the tool should do")
        found = self.strategy(
            ToolSearchRequest(query=query, tools=specifications, context=context, limit=self.max_results)
        )
        names = await found if inspect.isawaitable(found) else found
        described = {specification.name: specification.description for specification in specifications}
        names = [name for name in dict.fromkeys(names) if name in described][: self.max_results]
        if not names:
            return f"no tool fits {query!r}; use other words"
        return json.dumps([{"name": name, "description": described[name]} for name in names], ensure_ascii=False)

    def _is_always_shown(self, tool: Tool) -> bool:
        return tool.is_always_visible or self.always(tool)

    def _found_in(self, message: ChatMessage) -> list[str]:
        if not isinstance(message, ToolExecutionResultMessage) or message.tool_name != self.tool_name:
            return []
        try:
            return [tool["name"] for tool in json.loads(message.text)]
        except (ValueError, TypeError, KeyError):  # an error message, or text in another format
            return []

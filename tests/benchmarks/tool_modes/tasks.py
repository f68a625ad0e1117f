"""Tasks, and the steps of a model that makes no mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.tool_modes.gateway import MONTHS, ORDERS, errors_of

Call = tuple[str, Mapping[str, Any]]
Step = Sequence[Call]
"""Calls that a model requests together."""

SUMS = "SELECT customer, sum(euros) AS euros FROM orders GROUP BY customer ORDER BY euros DESC"
EVERY = "SELECT customer, euros FROM orders LIMIT 200"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of a user."""

    name: str
    question: str
    answer: str
    """Text that the last step has to return, or that follows from the results of the direct calls."""
    steps: Mapping[str, Sequence[Step]]
    """The steps in each mode."""


def found(name: str, arguments: Mapping[str, Any]) -> Call:
    """Call a tool that was found."""
    return "call_tool", {"name": name, "arguments": arguments}


def search(*queries: str, limit: int = 2) -> Step:
    return [("search_tools", {"query": query, "limit": limit}) for query in queries]


def script(code: str) -> Step:
    return [("run_code", {"code": code})]


READS: list[Call] = [("files_read_file", {"path": f"logs/{month:02}.log"}) for month in range(1, MONTHS + 1)]
COUNT = f"""
import asyncio
logs = await asyncio.gather(*[files_read_file(path=f"logs/{{m:02}}.log") for m in range(1, {MONTHS + 1})])
counts = [log.count("ERROR") for log in logs]
[counts.index(max(counts)) + 1, max(counts)]
"""
CHAIN = f"""
rows = (await database_query(sql="{SUMS}"))["rows"]
share = await calculator_divide(rows[0][1], sum(row[1] for row in rows))
await calculator_multiply(share, 100)
"""
WORST = max(range(1, MONTHS + 1), key=errors_of)
EUROS = [sum(number * 1.25 for number in range(ORDERS) if number % 9 == each) for each in range(9)]
SHARE = max(EUROS) / sum(EUROS)
TOTAL = sum(EUROS)

TASKS = (
    Task(
        name="one call",
        question="What is the square root of 1764?",
        answer="42",
        steps={
            "all": [[("calculator_square_root", {"x": 1764})]],
            "search": [search("square root of a number"), [found("calculator_square_root", {"x": 1764})]],
            "code": [search("square root of a number"), script("await calculator_square_root(x=1764)")],
        },
    ),
    Task(
        name="three calls, each with the result of the last",
        question="Which share of all sales, in percent, is that of our best customer?",
        answer=f"{SHARE * 100:.4f}"[:6],
        steps={
            "all": [
                [("database_query", {"sql": SUMS})],
                [("calculator_divide", {"a": max(EUROS), "b": TOTAL})],
                [("calculator_multiply", {"a": SHARE, "b": 100})],
            ],
            "search": [
                search("run an SQL query", "divide numbers", "multiply numbers"),
                [found("database_query", {"sql": SUMS})],
                [found("calculator_divide", {"a": max(EUROS), "b": TOTAL})],
                [found("calculator_multiply", {"a": SHARE, "b": 100})],
            ],
            "code": [search("run an SQL query", "divide numbers", "multiply numbers"), script(CHAIN)],
        },
    ),
    Task(
        name="twelve calls with large results",
        question="In which month do our logs have the most errors, and how many?",
        answer=str(errors_of(WORST)),
        steps={
            "all": [READS],
            "search": [search("read a text file"), [found(*each) for each in READS]],
            "code": [search("read a text file"), script(COUNT)],
        },
    ),
)

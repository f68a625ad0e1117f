"""Counts of what models read: results by tool, in characters and estimated tokens."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TypedDict

from bridge.text import CHARS_PER_TOKEN

UNLIMITED = sys.maxsize
"""Characters of results for which there is no limit."""


def tokens_of_chars(chars: int) -> int:
    """Estimate the tokens of a number of characters: one for four."""
    return -(-chars // CHARS_PER_TOKEN)


class ToolUsage(TypedDict):
    """Results of one tool so far, as ``/status`` shows them."""

    results: int
    """Number of results."""
    estimatedTokens: int
    """Tokens of all of them, before any was kept aside."""
    kept: int
    """Number of those that were over the limit."""
    estimatedTokensSaved: int
    """Tokens that models did not have to read."""


class Usage:
    """Counts of the results of tools, since the start."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}

    def count(self, tool: str, chars: int) -> None:
        """Count one result."""
        counts = self._counts.get(tool)
        if counts is None:
            counts = self._counts[tool] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += chars

    def spilled(self, tool: str, saved_chars: int) -> None:
        """Count a result that was already counted as one over the limit."""
        counts = self._counts[tool]
        counts[2] += 1
        counts[3] += saved_chars

    def saved(self) -> dict[str, int]:
        """Return the estimated tokens that models did not have to read, by tool."""
        return {tool: tokens_of_chars(counts[3]) for tool, counts in tuple(self._counts.items()) if counts[2]}

    def by_tool(self) -> dict[str, ToolUsage]:
        """Return the counts by tool, those with most tokens first."""
        rows = sorted(self._counts.items(), key=lambda row: row[1][1], reverse=True)
        return {
            tool: ToolUsage(
                results=results,
                estimatedTokens=tokens_of_chars(chars),
                kept=kept,
                estimatedTokensSaved=tokens_of_chars(saved),
            )
            for tool, (results, chars, kept, saved) in rows
        }


class Savings:
    """Estimated tokens that models did not have to read, since the start, by feature and tool."""

    def __init__(self) -> None:
        self._tokens: dict[str, Counter[str]] = {}

    def add(self, feature: str, tool: str, tokens: int) -> None:
        """Count tokens that a feature has saved."""
        self._tokens.setdefault(feature, Counter())[tool] += tokens

    def of(self, feature: str) -> dict[str, int]:
        """Return the tokens that a feature has saved, by tool."""
        return dict(self._tokens.get(feature, ()))

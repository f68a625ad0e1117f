"""Rules, problems and findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from inspect import getdoc
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bridge.doctor.subject import Item, Subject

Level = Literal["error", "warning", "note"]
"""Severity of a finding; the words are those of SARIF. A note does not count as a failure."""

LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""All levels, the most severe first."""

REPOSITORY = "https://github.com/mcp-toolbridge/bridge"
"""Address of the project, for reports."""

PAGE = f"{REPOSITORY}/blob/main/docs/reference/doctor.md"
"""Page that explains the rules; each rule is a heading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One violation of a rule."""

    item: Item
    """The object that violates it."""
    message: str
    """Description, without the object's name."""
    remedy: str
    """Action that resolves it, in the imperative."""
    where: str = ""
    """Path within the definition, such as ``inputSchema.properties.city``; empty for the whole object."""
    detail: str = ""
    """Further lines, such as a diff."""


Check = Callable[["Subject"], Iterable[Problem]]
"""Yields the violations of one rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One check with its name, level and documentation."""

    name: str
    """Name in reports and options: ``plain-http``."""
    level: Level
    """Severity of its findings."""
    summary: str
    """Description in one sentence."""
    explanation: str
    """Further paragraphs in Markdown: the reason for the rule, and its limits."""
    check: Check = field(repr=False)
    """Yields the violations."""

    @property
    def url(self) -> str:
        """Address of its explanation."""
        return f"{PAGE}#{self.name}"


def rule(level: Level) -> Callable[[Check], Rule]:
    """Turn a check into a rule: its name is the function's, with hyphens; its documentation is the docstring."""

    def decorate(check: Check) -> Rule:
        summary, _, explanation = (getdoc(check) or "").partition("\n\n")
        name = getattr(check, "__name__", "").replace("_", "-")
        return Rule(name=name, level=level, summary=summary, explanation=explanation, check=check)

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem with the rule that found it."""

    rule: Rule
    problem: Problem

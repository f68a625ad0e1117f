"""Reports of an examination as text and JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bridge.doctor.rule import LEVELS
from bridge.doctor.schemas import provider_forms
from bridge.text import escape_controls, with_count
from bridge.tools.transform import safe_names
from bridge.types import without_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.doctor.rule import Finding
    from bridge.doctor.subject import Subject
    from bridge.types import Json


def as_text(findings: Sequence[Finding], subject: Subject, *, shows_notes: bool) -> str:
    """Findings by level, and a summary; invisible characters are escaped, since a report may quote hostile texts."""
    shown = [finding for finding in findings if shows_notes or finding.rule.level != "note"]
    blocks = ["\n".join(_lines(finding)) for finding in shown]
    return escape_controls("\n\n".join([*blocks, _summary(findings, subject, shows_notes=shows_notes)]))


def _lines(finding: Finding) -> list[str]:
    problem = finding.problem
    place = f", {_one_line(problem.where)}" if problem.where else ""
    lines = [
        f"{finding.rule.level}: {_one_line(str(problem.item))}{place}: {_one_line(problem.message)}",
        f"  {_one_line(problem.remedy)}",
        f"  {finding.rule.name}: {finding.rule.url}",
    ]
    return lines + [f"    {line}" for line in problem.detail.splitlines()]


def _summary(findings: Sequence[Finding], subject: Subject, *, shows_notes: bool) -> str:
    counts = Counter(finding.rule.level for finding in findings)
    found = ", ".join(with_count(counts[level], level) for level in LEVELS if counts[level]) or "no findings"
    if not counts["error"] and not counts["warning"] and counts["note"]:
        found = f"no errors or warnings, {found}"
    hint = " (--notes shows them)" if counts["note"] and not shows_notes else ""
    kinds = Counter(definition.item.kind for definition in subject.definitions)
    checked = ", ".join(with_count(count, kind) for kind, count in kinds.items())
    cost = f"; the definitions of the tools cost about {_tokens(subject)}" if subject.tools else ""
    return f"{found}{hint}{checked and f' in {checked}'}{cost}"


def _tokens(subject: Subject) -> str:
    """Return the estimated tokens of all definitions, and those of each of several servers."""
    tokens: Counter[str] = Counter()
    for definition, specification in subject.tools:
        tokens[definition.server or definition.item.source] += specification.estimated_tokens
    each = ", ".join(f"{_one_line(server)} {count:,}" for server, count in tokens.most_common())
    return f"{tokens.total():,} tokens" + (f" ({each})" if len(tokens) > 1 else "")


def as_json(findings: Sequence[Finding], subject: Subject) -> Json:
    """Findings, and for each tool its tokens and the definition that each provider receives."""
    sent = safe_names([definition.item.name for definition, _ in subject.tools])
    return {
        "findings": [_finding(finding) for finding in findings],
        "tools": [
            {
                "name": specification.name,
                "target": definition.item.source,
                "tokens": specification.estimated_tokens,
                "providers": dict(provider_forms(specification, sent[specification.name])),
            }
            | without_none(server=definition.server)
            for definition, specification in subject.tools
        ],
    }


def _finding(finding: Finding) -> Json:
    problem, item = finding.problem, finding.problem.item
    return {
        "rule": finding.rule.name,
        "level": finding.rule.level,
        "kind": item.kind,
        "name": item.name,
        "target": item.source,
        "message": problem.message,
        "remedy": problem.remedy,
        "url": finding.rule.url,
    } | without_none(where=problem.where or None, detail=problem.detail or None)


def _one_line(text: str) -> str:
    return " ".join(text.split())

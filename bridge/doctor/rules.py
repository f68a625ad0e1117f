"""All rules, and the examination of a subject by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.doctor import configuration, descriptions, instructions, names, safety, schemas
from bridge.doctor.rule import LEVELS, Finding, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.doctor.subject import Subject

GROUPS: Mapping[str, tuple[Rule, ...]] = {
    title: tuple(each for each in vars(module).values() if isinstance(each, Rule))
    for title, module in {
        "Configuration": configuration,
        "Names": names,
        "Schemas": schemas,
        "Descriptions": descriptions,
        "Instructions to the model": instructions,
        "Hidden text, secrets and annotations": safety,
    }.items()
}
"""The rules by the title of their group."""

RULES: Mapping[str, Rule] = {each.name: each for group in GROUPS.values() for each in group}
"""The rules by name."""


def examine(subject: Subject, rules: Iterable[Rule] | None = None) -> list[Finding]:
    """Apply rules, by default all, to a subject; the most severe findings come first."""
    chosen = RULES.values() if rules is None else rules
    found = [Finding(rule=rule, problem=problem) for rule in chosen for problem in rule.check(subject)]
    return sorted(found, key=lambda finding: LEVELS.index(finding.rule.level))

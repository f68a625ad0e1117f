"""Sources of skills and of types of events: changed and combined, without importing what few servers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.events.event_type import EventType
    from bridge.events.source import Events
    from bridge.skills.skill import Skill
    from bridge.skills.source import Skills


def changed_skills(skills: Skills | None, change: Callable[[Skill], Skill | None]) -> Skills | None:
    """Return skills that follow others, whose files the changed resources have; None for none."""
    if skills is None:
        return None
    from bridge.skills.source import ChangedSkills  # noqa: PLC0415 - only with skills

    return ChangedSkills(skills, change)


def all_skills(skills: list[Any]) -> Skills | None:
    """Return the skills of several sources; None if none is given."""
    if len(skills) < 2:  # noqa: PLR2004 - one is used itself
        return skills[0] if skills else None
    from bridge.skills.source import CombinedSkills  # noqa: PLC0415 - only with skills

    return CombinedSkills(skills)


def changed_events(events: Events | None, change: Callable[[EventType], EventType | None]) -> Events | None:
    """Return events that follow others; None for none."""
    if events is None:
        return None
    from bridge.events.source import ChangedEvents  # noqa: PLC0415 - only with events

    return ChangedEvents(events, change)


def all_events(events: list[Events]) -> Events | None:
    """Return the events of several sources; None if none is given.

    Raises:
        NameClashError: Two types of this process have the same name.
    """
    if len(events) < 2:  # noqa: PLR2004 - one is used itself
        return events[0] if events else None
    from bridge.events.source import CombinedEvents, require_distinct  # noqa: PLC0415 - only with events

    require_distinct(each for source in events for each in source.local())
    return CombinedEvents(events)

"""A line for each tool, resource, prompt and skill of a target."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.cli.list.parameters import one_line
from bridge.cli.terminal import table
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bridge.events.event_type import EventType
    from bridge.server.features import Features
    from bridge.skills.skill import Skill
    from bridge.tools.specification import ToolSpecification

_MAX_CHARS = 100
"""Maximum characters of the first sentence of a description."""
_MAX_NAME_CHARS = 80
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

_Row = tuple[str, str]


def as_text(features: Features, skills: Sequence[Skill], events: Sequence[EventType]) -> str:
    """Return the table: of tools without a heading if there is nothing else."""
    box, files = features.resources, {skill.uri for skill in skills}
    resources = [] if box is None else [(each.uri, each.description) for each in box.resources if each.uri not in files]
    templates = [] if box is None else [(str(each.uri_template), each.description) for each in box.templates]
    lists: dict[str, list[tuple[str, str | None]]] = {
        "Tools:": [(_call(tool.specification), tool.specification.description) for tool in features.tools],
        "Resources:": [*resources, *templates],
        "Prompts:": [
            (" ".join([each.name, *(argument.name for argument in each.arguments)]), each.description)
            for each in features.prompts or ()
        ],
        "Skills:": [(skill.uri, skill.description) for skill in skills],
        "Events:": [(event.name, event.description) for event in events],
    }
    given = {heading: _rows(items) for heading, items in lists.items() if items}
    if given.keys() <= {"Tools:"}:
        return "" if not given else table(given["Tools:"])
    parts = [f"{heading}\n{_indented(table(rows))}" for heading, rows in given.items()]
    return "\n\n".join(parts)


def _rows(items: Iterable[tuple[str, str | None]]) -> list[_Row]:
    return [(clip(one_line(name), _MAX_NAME_CHARS), _first_sentence(description or "")) for name, description in items]


def _call(tool: ToolSpecification) -> str:
    """Return the name of a tool and its parameters; optional ones in brackets."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required") or ()
    names = properties if isinstance(properties, dict) else ()
    return " ".join([tool.name, *(name if name in required else f"[{name}]" for name in names)])


def _first_sentence(text: str) -> str:
    return clip(_SENTENCE_END.split(one_line(text), maxsplit=1)[0], _MAX_CHARS)


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.splitlines())

"""Kinds of action that a query asks for and a tool does: reading, creating, updating or deleting.

Tools for one kind of object share most of their words, and differ in the action: ``sql_db_create``, ``sql_db_get``. A
question reads, whatever its verb: "which firewall rules does the server have".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.tools.search.words import stem_of, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Action: TypeAlias = Literal["read", "create", "update", "delete"]

_VERBS: Mapping[Action, str] = {
    "read": """
        analyze browse check compare count describe display download enumerate explain export fetch find get inspect
        list look lookup query read retrieve search see show summarize view""",
    "create": """
        add append attach create generate import insert install launch make new open post put register send start
        upload""",
    "update": """
        adjust alter assign change convert edit fix modify move patch reassign rename reorder replace resize resolve
        set transition update""",
    "delete": """
        cancel clear close delete discard drop erase forget kill purge remove stop terminate uninstall unsubscribe
        unwatch wipe""",
}
_BY_STEM: Mapping[str, Action] = {stem_of(verb): action for action, verbs in _VERBS.items() for verb in verbs.split()}
_QUESTION_WORDS = frozenset(
    "any are did does has is was were what when where which who whose why".split()  # noqa: SIM905 - shorter
)
_AFTER_HOW = frozenset(
    "are big did does far high is large long many much often old was were".split()  # noqa: SIM905 - as above
)


def action_of_tool(name: str, description: str | None) -> Action | None:
    """Return the action of a tool by its name, or else by the first word of its description; None if neither says."""
    return _first(words_of(name)) or _first(words_of((description or "")[:40])[:1])


def action_of_query(words: Sequence[str]) -> Action | None:
    """Return the action that the words of a query ask for; None if they do not say."""
    first, second = (*words[:2], "", "")[:2]
    if first in _QUESTION_WORDS or (first == "how" and second in _AFTER_HOW):
        return "read"
    return _first(words)


def _first(words: Iterable[str]) -> Action | None:
    return next((action for word in words if (action := _BY_STEM.get(stem_of(word))) is not None), None)

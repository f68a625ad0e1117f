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
    "create": "add append attach create generate import insert install launch make new open post put register send start upload",
    "update": """
        adjust alter assign change convert edit fix modify move patch reassign rename reorder replace resize resolve set
        transition update""",
    "delete": "cancel clear close delete discard drop erase forget kill purge remove stop terminate uninstall unsubscribe unwatch wipe",
}
_BY_STEM: Mapping[str, Action] = {stem_of(verb): action for action, verbs in _VERBS.items() for verb in verbs.split()}
_QUESTION_WORDS = frozenset("what which who whose when where why is are was were did does has any".split())
_AFTER_HOW = frozenset("many much long far high big large old often is are was were did does".split())


def action_of_tool(name: str, description: str | None) -> Action | None:
    """Return the action of a tool by its name, or else by the first word of its description; None if neither says."""
    return _first(words_of(name)) or _first(words_of((description or "")[:40])[:1])


def action_of_query(words: Sequence[str]) -> Action | None:
    """Return the action that the words of a query ask for; None if they do not say."""
    if not words:
        return None
    if words[0] in _QUESTION_WORDS or (words[0] == "how" and words[1:2] and words[1] in _AFTER_HOW):
        return "read"
    return _first(words)


def _first(words: Iterable[str]) -> Action | None:
    return next((action for word in words if (action := _BY_STEM.get(stem_of(word))) is not None), None)

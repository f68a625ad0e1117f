"""Rules of hidden and active characters, secrets, and annotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.doctor.hidden import character_name, control_characters, hidden_characters, spelled_by_tags
from bridge.doctor.rule import Problem, rule
from bridge.redaction import holds_key
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.doctor.subject import Subject

_MAX_NAMED = 3
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_READS = frozenset(
    {
        *("check", "compare", "count", "describe", "download", "export", "fetch", "find", "get", "has", "is", "list"),
        *("load", "look", "lookup", "peek", "preview", "query", "read", "retrieve", "search", "show", "view"),
    }
)
_DESTROYS = frozenset(
    {
        *("clear", "delete", "destroy", "discard", "drop", "erase", "kill", "overwrite", "prune", "purge", "remove"),
        *("reset", "revoke", "terminate", "truncate", "uninstall", "unlink", "wipe"),
    }
)
_CHANGES = _DESTROYS | frozenset(
    {
        *("buy", "cancel", "commit", "create", "deploy", "edit", "execute", "insert", "install", "modify", "move"),
        *("pay", "publish", "push", "rename", "restart", "save", "send", "submit", "transfer", "update", "upload"),
        *("write",),
    }
)
"""Verbs that change something; "add", "set" and others also name calculations, or are nouns."""
_GIVES = _READS | frozenset(
    {
        *("analyze", "calculate", "display", "estimate", "explain", "generate", "give", "provide", "recommend"),
        *("render", "return", "suggest", "summarize", "validate"),
    }
)
"""Verbs at the beginning of a description that change nothing."""
_COMPUTED = re.compile(
    r"(?:chart|completion|diagram|embedding|estimate|graph|plan|preview|recommendation|report|summary|visuali[sz]ation)s?"
)
"""Results that are created, and given to the caller alone."""
_TEXTS = re.compile(
    r"\b(?:instructions?|guidance|guidelines?|guides?|steps|plans?|diagrams?|rules|templates?|previews?|examples?"
    r"|recommendations?|advice|documentation)\b"
)
"""Texts about a change, which a description says that its tool gives."""
_FIRST_WORD = re.compile(r"\W*([A-Za-z]+)")
_FIRST_SENTENCE_CHARS = 200
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_PLACEHOLDER = re.compile(r"(?i)example|your|xxx|dummy|placeholder|\.\.\.|0123|1234")
_DIGIT = re.compile(r"\d")


@rule("error")
def hidden_unicode(subject: Subject) -> Iterator[Problem]:
    """A definition contains invisible characters: zero-width ones, writing direction marks, or tags.

    A user who reviews the text does not see them; a model reads them. Tag characters spell whole sentences, which the
    message shows. Emoji, and the direction marks of right-to-left scripts, are not reported.
    """
    for definition in subject.definitions:
        for where, text in definition.texts:
            if found := hidden_characters(text):
                names = list(dict.fromkeys(map(character_name, found)))
                more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
                message = f"{len(found)} invisible: {', '.join(names[:_MAX_NAMED])}{more}"
                if spelled := spelled_by_tags(text):
                    message += f"; the tags spell {short_repr(spelled)}"
                yield Problem(item=definition.item, message=message, remedy="remove them", where=where)


@rule("error")
def terminal_escape(subject: Subject) -> Iterator[Problem]:
    r"""A definition contains control characters, such as the escape sequences that terminals obey.

    They can hide or overwrite the text that a user reviews. Escape sequences that are written out, such as
    `\\x1b[8m`, are reported too, since a program may decode them.
    """
    for definition in subject.definitions:
        for where, text in definition.texts:
            if (found := control_characters(text)) or (found := _WRITTEN_ESCAPE.findall(text)):
                message = f"control characters: {', '.join(dict.fromkeys(map(repr, found[:_MAX_NAMED])))}"
                yield Problem(item=definition.item, message=message, remedy="remove them", where=where)


_WRITTEN_ESCAPE = re.compile(r"\\(?:x1[bB]|u001[bB]|033|e)(?=[\[\]])")


@rule("error")
def secret_exposed(subject: Subject) -> Iterator[Problem]:
    """A definition contains a key or a private key, for example as a default: every client and every model receives it.

    The value itself is not shown. Words such as `example` mark a placeholder, which is not reported.
    """
    for definition in subject.definitions:
        for where, text in definition.texts:
            is_key = holds_key(text) and _DIGIT.search(text) and not _PLACEHOLDER.search(text)
            if is_key or _PRIVATE_KEY.search(text):
                remedy = "remove it, and replace the secret: it has been sent to clients"
                yield Problem(item=definition.item, message="it looks like a secret key", remedy=remedy, where=where)


@rule("note")
def skill_asks_for_tools(subject: Subject) -> Iterator[Problem]:
    """A skill asks to use tools without approval, by `allowed-tools` in its frontmatter.

    Clients must ignore that in a skill of a server, and bridge does. Its author may expect otherwise.
    """
    for definition in subject.definitions:
        if definition.item.kind == "skill" and "allowed-tools" in definition.document["frontmatter"]:
            message = "it asks to use tools without approval, which is not granted"
            remedy = "remove allowed-tools, or accept that it has no effect"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="frontmatter.allowed-tools")


@rule("error")
def annotation_contradicts_name(subject: Subject) -> Iterator[Problem]:
    """A tool is marked as read-only, or as not destructive, but its name says otherwise, such as `delete_file`.

    Clients run read-only tools without asking the user. The first verb of the name decides, so `get_deleted_items`
    may be read-only; so may `deploy_logs_get`, a tool that creates embeddings, and one that only gives instructions, if
    its description begins so.
    """
    for definition, specification in subject.tools:
        hints = specification.annotations
        if hints is None or (verb := _verb(definition.own_name)) is None:
            continue
        if _only_reads(definition.own_name, verb, definition.description):
            continue
        if hints.read_only and verb in _CHANGES:
            remedy = "remove readOnlyHint, or rename the tool"
            message = f"it is marked as read-only, but its name says {verb!r}"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="annotations.readOnlyHint")
        elif hints.destructive is False and verb in _DESTROYS:
            remedy = "remove destructiveHint, or rename the tool"
            message = f"it is marked as not destructive, but its name says {verb!r}"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="annotations.destructiveHint")


def _verb(name: str) -> str | None:
    """First word of a name that is a known verb."""
    return next((word for word in _words(name) if word in _READS or word in _CHANGES), None)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _only_reads(name: str, verb: str, description: str) -> bool:
    """Return True if a name or description says that a tool with a verb of change in its name changes nothing."""
    words, first = _words(name), _FIRST_WORD.match(description)
    said = _base_form(first[1].lower()) if first else ""
    if verb == "create" and any(map(_COMPUTED.fullmatch, words)):
        return True
    if words[-1] in _READS and (said not in _CHANGES or said == "create"):  # "deploy_logs_get"
        return True
    return said in _GIVES and _TEXTS.search(description[:_FIRST_SENTENCE_CHARS].partition(". ")[0].lower()) is not None


def _base_form(word: str) -> str:
    """A verb without the ending of the third person."""
    known = _GIVES | _CHANGES
    return next((form for form in (word, word.removesuffix("s"), word.removesuffix("es")) if form in known), word)

"""Rules of names: providers' patterns, names that hide one another, and lookalikes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from bridge.doctor.hidden import character_name, latin
from bridge.doctor.providers import PROVIDERS
from bridge.doctor.rule import Problem, rule
from bridge.tools.transform import safe_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.doctor.subject import Definition, Subject

_SEPARATORS = re.compile(r"[\W_]+")
_FIRST_PART = re.compile(r"(?<![\w.-])[\w-]+")
"""Beginning of a name in a text, up to a dot or another separator."""
_GOES_ON = re.compile(r"[\w-]")
_MIN_NAMED_CHARS = 6
_MAX_NAMED_CHARS = 128
"""Maximum characters of a name of MCP; longer names are not compared."""


@rule("warning")
def name_refused(subject: Subject) -> Iterator[Problem]:
    """A provider refuses the name of a tool, and with it the whole request.

    OpenAI and Bedrock accept letters, digits, `_` and `-`, at most 64 characters; Anthropic accepts 128. Gemini also
    accepts dots and colons, and requires a letter or `_` at the beginning. Bridge's chat models replace such a name, as
    the message shows. Other clients that use the tool may not.
    """
    sent = safe_names([definition.item.name for definition, _ in subject.tools])
    for definition, _ in subject.tools:
        name = definition.item.name
        refusing = [each for each in PROVIDERS if not each.tool_name.fullmatch(name)]
        if refusing:
            message = f"{', '.join(each.name for each in refusing)} would refuse the name"
            if any(each.has_adapter for each in refusing) and sent[name] != name:
                message += f"; bridge sends {sent[name]!r}"
            remedy = "use letters, digits and underscores, at most 64 characters, beginning with a letter"
            yield Problem(item=definition.item, message=message, remedy=remedy, where="name")


@rule("warning")
def name_shadowed(subject: Subject) -> Iterator[Problem]:
    """Two tools have the same name, or names that differ only in case and separators.

    A model confuses them, and a server can take over the calls of another one in this way. With several servers, bridge
    puts the server's name before each name; see [Names](../clients/names.md).
    """
    for first, *others in _alike(subject):
        for other in others:
            likeness = "the same name as" if other.item.name == first.item.name else "nearly the name of"
            message = f"it has {likeness} the {first.item}{_origin(first)}"
            yield Problem(item=other.item, message=message, remedy="rename one, or set a prefix", where="name")


@rule("error")
def name_lookalike(subject: Subject) -> Iterator[Problem]:
    """The name of a tool contains letters of another script that look like Latin ones (Cyrillic or Greek).

    Such a name passes for another one. Bridge replaces these letters for models, so the name is judged as its server
    sends it.
    """
    for definition, _ in subject.tools:
        if strange := [char for char in definition.own_name if latin(char) != char]:
            message = f"{definition.own_name!r} contains {', '.join(dict.fromkeys(map(character_name, strange)))}"
            yield Problem(item=definition.item, message=message, remedy="use only ASCII letters", where="name")


@rule("warning")
def other_server_named(subject: Subject) -> Iterator[Problem]:
    """The definition of a tool names a tool of another server.

    In this way a server can change how a model uses tools that do not belong to it, such as the recipient of every
    mail. Names of its own tools, also without the prefix of several of them, and of its parameters are its own. Only
    names with at least six characters and a separator are compared, since others are ordinary words, and
    none with more than 128.
    """
    if len({(each.item.source, each.server) for each, _ in subject.tools}) <= 1:
        return
    names = {name for definition, _ in subject.tools for name in (definition.own_name, definition.item.name)}
    compared = {
        name for name in names if _MIN_NAMED_CHARS <= len(name) <= _MAX_NAMED_CHARS and _SEPARATORS.search(name)
    }
    lengths: defaultdict[str, set[int]] = defaultdict(set)
    for name in compared:
        if first := _FIRST_PART.match(name):
            lengths[first[0]].add(len(name))
    own = _own_names(subject)
    for definition, _ in subject.tools:
        for where, text in definition.texts:
            named = set(_named(text, compared, lengths)) - own[definition.item.source, definition.server]
            if named and where != "name":
                message = f"it names {min(named)!r}, a tool of another server"
                remedy = "review the text; leave the tool out if it redirects calls of the other server"
                yield Problem(item=definition.item, message=message, remedy=remedy, where=where)


def _own_names(subject: Subject) -> Mapping[tuple[str, str | None], set[str]]:
    """Names of each server: of its tools, also without a prefix that several of them have, and of their parameters."""
    own: defaultdict[tuple[str, str | None], set[str]] = defaultdict(set)
    prefixes: defaultdict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
    for definition, specification in subject.tools:
        server = definition.item.source, definition.server
        own[server] |= {definition.own_name, definition.item.name}
        prefixes[server][_prefix(definition.own_name)] += 1
        properties = specification.parameters.get("properties")
        own[server].update(map(str, properties if isinstance(properties, dict) else ()))
    for definition, _ in subject.tools:
        server = definition.item.source, definition.server
        if prefixes[server][prefix := _prefix(definition.own_name)] > 1:
            own[server].add(definition.own_name.removeprefix(prefix))
    return own


def _prefix(name: str) -> str:
    """First part of a name, with its separator; empty if it has one part."""
    first, separator, rest = name.partition("_")
    return first + separator if rest else ""


def _named(text: str, names: set[str], lengths: Mapping[str, set[int]]) -> Iterator[str]:
    """Names in a text, by the lengths of the names that have the same first part; it takes linear time."""
    for first in _FIRST_PART.finditer(text):
        for length in lengths.get(first[0], ()):
            end = first.start() + length
            if (name := text[first.start() : end]) in names and not _GOES_ON.match(text, end):
                yield name


def _alike(subject: Subject) -> list[list[Definition]]:
    """Groups of tools whose names differ at most in case and separators."""
    groups: defaultdict[str, list[Definition]] = defaultdict(list)
    for definition, _ in subject.tools:
        groups[_SEPARATORS.sub("", definition.item.name).casefold()].append(definition)
    return [group for group in groups.values() if len(group) > 1]


def _origin(definition: Definition) -> str:
    return f" of {definition.item.source}" if definition.server is None else f" of the server {definition.server!r}"

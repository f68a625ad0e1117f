"""Setting one member of an object in a JSON text; all other characters, including comments, are unchanged."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.client.config.document import blank_comments, comments, parse_jsonc
from bridge.client.config.formats import map_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["comments", "member_of", "section_of", "with_member"]

_BLANK = re.compile(r"\s*")
_BLANK_OR_COMMENTS = re.compile(r"(?:\s|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_INDENT = re.compile(r"[ \t]*")
_REST_OF_LINE_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/[ \t]*(?=[\r\n]))")
_FIRST_MEMBER = re.compile(r"\{\s*\n([ \t]+)\S")
_DEFAULT_INDENT = "  "


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """Set ``name: value`` in the object under ``section``, a key at the root that is created if missing.

    The text is JSON with comments and trailing commas; blank text is an empty object. Errors name its ``source``.

    Raises:
        ConfigError: The text is not JSON.
        ValueError: The root or the section is not an object.
    """
    if not text.strip("\ufeff \t\r\n"):
        return text.rstrip(" \t\r\n") + json.dumps({section: {name: value}}, indent=2, ensure_ascii=False) + "\n"
    document = parse_jsonc(_without_mark(text), source)
    if not isinstance(document, dict) or not isinstance(document.get(section, {}), dict):
        where = "root" if not isinstance(document, dict) else repr(section)
        raise ValueError(f"{source}: its {where} is not a JSON object")  # noqa: TRY004 - not an argument's type
    edited = _Layout(text).with_member(section, name, value)
    document.setdefault(section, {})[name] = value
    assert parse_jsonc(_without_mark(edited), source) == document
    return edited


def section_of(text: str, name: str, source: str) -> str:
    """Return the key of the object that has, or would get, a server.

    Raises:
        ConfigError: The text is not JSON.
        ValueError: The servers are at the root.
    """
    document = parse_jsonc(_without_mark(text), source) if text.strip("\ufeff \t\r\n") else {}
    if not isinstance(document, dict) or (section := map_of(document, name)) is None:
        raise ValueError(f"{source}: it has no 'mcpServers', into which the server could be written")
    return section


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """Return the value of a member; None if it is missing or the text is blank.

    Raises:
        ConfigError: The text is not JSON.
    """
    document = parse_jsonc(_without_mark(text), source) if text.strip("\ufeff \t\r\n") else {}
    inner = document.get(section) if isinstance(document, dict) else None
    return inner.get(name) if isinstance(inner, dict) else None


def _without_mark(text: str) -> str:
    return " " + text[1:] if text.startswith("\ufeff") else text


@dataclass(frozen=True, slots=True)
class _Member:
    """Position of an object's member in the text."""

    key: str
    key_start: int
    start: int
    """Start of the value."""
    end: int
    """End of the value."""


class _Layout:
    """Text of a JSON object, and its formatting."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = blank_comments(_without_mark(text))
        self.step = next(filter(None, map(self._step_at, _FIRST_MEMBER.finditer(self.plain))), _DEFAULT_INDENT)
        self.is_one_line = "\n" not in text.strip() and not re.fullmatch(r"\s*\{\s*\}\s*", self.plain)
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def _step_at(self, match: re.Match[str]) -> str:
        """Further indentation of the first member of an object; empty if it is not clear."""
        outer = self.indent_at(match.start())
        return match[1].removeprefix(outer) if match[1].startswith(outer) and match[0][-1] != "}" else ""

    def with_member(self, section: str, name: str, value: Mapping[str, Any]) -> str:
        root = self.plain.index("{")
        found = _last(self.members(root), section)
        if found is None:
            return self.inserted(root, section, {name: value})
        present = _last(self.members(found.start), name)
        if present is None:
            return self.inserted(found.start, name, value)
        return self.updated(present, value)

    def updated(self, member: _Member, value: Any) -> str:
        """Give a member another value; in objects, equal members keep their text, and all their comments."""
        present = json.loads(self.plain[member.start : member.end])
        is_blank = not present and not comments(self.text[member.start : member.end])
        if is_blank or not isinstance(present, dict) or not isinstance(value, dict):
            return self.replaced(member, value)
        members = self.members(member.start)
        if (gone := next((index for index, each in enumerate(members) if each.key not in value), None)) is not None:
            text = self.removed(members, gone)
        elif changed := next((each for each in members if present[each.key] != value[each.key]), None):
            text = self.updated(_last(members, changed.key) or changed, value[changed.key])
        elif added := next((key for key in value if key not in present), None):
            text = self.inserted(member.start, added, value[added])
        else:
            return self.text
        layout = _Layout(text)
        return layout.updated(layout.member_at(member.key_start), value)

    def member_at(self, start: int) -> _Member:
        """Member whose key starts at a position."""
        decoder = json.JSONDecoder()
        key, after_key = decoder.raw_decode(self.plain, start)
        value_start = self.skip(self.skip(after_key) + 1)
        return _Member(key, start, value_start, decoder.raw_decode(self.plain, value_start)[1])

    def replaced(self, member: _Member, value: Any) -> str:
        dumped = self.dumped(value, self.indent_at(member.key_start))
        return self.text[: member.start] + dumped + self.text[member.end :]

    def removed(self, members: list[_Member], index: int) -> str:
        """Remove a member and its comma; comments stay."""
        member, text = members[index], self.text
        following = _end_of(_BLANK_OR_COMMENTS, text, member.end)
        start, end = member.key_start, member.end
        if text[following] == ",":
            text = text[:following] + text[following + 1 :]
        elif index:
            comma = self.skip(members[index - 1].end)
            text = text[:comma] + text[comma + 1 :]
            start, end = start - 1, end - 1
        before, after = text[:start], text[end:].lstrip(" \t")
        line = before.rstrip(" \t")
        if line.endswith("\n") and after.startswith(("\r\n", "\n")):  # nothing else on the line
            return line + after.removeprefix("\r").removeprefix("\n")
        return before + after

    def members(self, start: int) -> list[_Member]:
        """Members of the object at this position."""
        decoder, found = json.JSONDecoder(), []
        position = self.skip(start + 1)
        while self.plain[position] != "}":
            key, after_key = decoder.raw_decode(self.plain, position)
            value_start = self.skip(self.skip(after_key) + 1)
            _, end = decoder.raw_decode(self.plain, value_start)
            found.append(_Member(key, position, value_start, end))
            position = self.skip(end)
            if self.plain[position] == ",":
                position = self.skip(position + 1)
        return found

    def inserted(self, start: int, key: str, value: Any) -> str:
        """Add a member at the end of the object at this position."""
        members = self.members(start)
        label = json.dumps(key, ensure_ascii=False) + ": "
        if not members:
            return self.into_empty(start, label, value)
        last, close = members[-1], self.skip(members[-1].end)
        if "\n" not in self.text[start:close]:
            return self.put(last.end, ", " + label + json.dumps(value, ensure_ascii=False))
        indent = self.indent_at(members[0].key_start)
        member = self.newline + indent + label + self.dumped(value, indent)
        if (comma := self.trailing_comma(last.end, close)) is not None:
            return self.put(self.end_of_comment(comma + 1), member + ",")
        place = self.end_of_comment(last.end)
        return self.text[: last.end] + "," + self.text[last.end : place] + member + self.text[place:]

    def into_empty(self, start: int, label: str, value: Any) -> str:
        """Like `inserted`, for an object without members; it may contain comments."""
        close = self.skip(start + 1)
        outer = self.indent_at(start)
        place = start + 1 + len(self.text[start + 1 : close].rstrip())
        if self.is_one_line:
            return self.text[:place] + label + self.dumped(value, outer) + self.text[close:]
        closing = self.text[place:close] if "\n" in self.text[place:close] else self.newline + outer
        indent = outer + self.step
        addition = self.newline + indent + label + self.dumped(value, indent) + closing
        return self.text[:place] + addition + self.text[close:]

    def put(self, place: int, addition: str) -> str:
        return self.text[:place] + addition + self.text[place:]

    def skip(self, position: int) -> int:
        """Position of the next significant character."""
        return _end_of(_BLANK, self.plain, position)

    def trailing_comma(self, start: int, end: int) -> int | None:
        """Position of a trailing comma, possibly after comments; None for none."""
        found = _end_of(_BLANK_OR_COMMENTS, self.text, start, end)
        return found if self.text[found] == "," else None

    def end_of_comment(self, position: int) -> int:
        """End of a comment on the rest of the line; the position itself without one."""
        return _end_of(_REST_OF_LINE_COMMENT, self.text, position)

    def indent_at(self, position: int) -> str:
        """Indentation of the line at a position."""
        start = self.text.rfind("\n", 0, position) + 1
        return self.text[start : _end_of(_LINE_INDENT, self.text, start)]

    def dumped(self, value: Any, indent: str) -> str:
        """Serialise a value with indented lines; in a text of one line, on that line."""
        if self.is_one_line:
            return json.dumps(value, ensure_ascii=False)
        return json.dumps(value, indent=self.step, ensure_ascii=False).replace("\n", self.newline + indent)


def _end_of(pattern: re.Pattern[str], text: str, start: int, end: int = sys.maxsize) -> int:
    """End of a match at a position; the position itself without one."""
    match = pattern.match(text, start, end)
    return match.end() if match else start


def _last(members: list[_Member], key: str) -> _Member | None:
    """Last member with this key, which is the one that parsers use."""
    return next((member for member in reversed(members) if member.key == key), None)

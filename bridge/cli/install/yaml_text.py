"""Setting one member of a mapping in a YAML text; all other lines, including comments, are unchanged."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.yaml_reader import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_COLUMNS = 2**16
"""Columns of a line that is written: texts are not broken into several."""


_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*", re.MULTILINE)


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """Set ``name: value`` in the mapping under ``section``; errors name the ``source`` of the text.

    Raises:
        ConfigError: The text is not YAML.
        MissingExtraError: pyyaml is not installed.
        ValueError: The root or the section is not a mapping, or it cannot be edited.
    """
    expected = _parsed(text, source)
    if not isinstance(expected, dict) or not isinstance(expected.get(section) or {}, dict):
        where = "root" if not isinstance(expected, dict) else repr(section)
        raise ValueError(f"{source}: its {where} is not a mapping")  # noqa: TRY004 - not an argument's type
    expected = {**expected, section: {**(expected.get(section) or {}), name: value}}
    edited = _edited(text, section, name, value)
    try:
        is_as_expected = _parsed(edited, source) == expected
    except ConfigError:
        is_as_expected = False
    if not is_as_expected:
        raise ValueError(f"{source}: its form cannot be edited: add {name!r} to {section!r} yourself")
    return edited


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """Return the value of a member; None if it is missing or the text is blank.

    Raises:
        ConfigError: The text is not YAML.
        MissingExtraError: pyyaml is not installed.
    """
    document = _parsed(text, source)
    inner = document.get(section) if isinstance(document, dict) else None
    return inner.get(name) if isinstance(inner, dict) else None


def comments(text: str) -> list[str]:
    """Comments of a text in their order."""
    import yaml  # noqa: PLC0415 - of an extra, which has parsed the text

    between, end = [], 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.ScalarToken):
            between.append(text[end : token.start_mark.index])
            end = token.end_mark.index
    return _COMMENT.findall("x".join([*between, text[end:]]))


def _parsed(text: str, source: str) -> Any:
    try:
        document = read_yaml(text.encode(), source, extra="clients")
    except DefinitionError as error:
        raise ConfigError(source, [ConfigProblem(str(error).removeprefix(f"{source} "))]) from error
    return {} if document is None else document


def _edited(text: str, section: str, name: str, value: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 - of an extra, which has parsed the text

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _member(root, section)
    if found is None:
        return _after(text, len(text.rstrip()), _lines({section: {name: value}}, 0))
    key, servers = found
    if not servers.value or not isinstance(servers.value, list):  # null, or without members
        step = _lines({name: value}, _column(servers, root))
        head, rest = text[: servers.start_mark.index], text[servers.end_mark.index :]
        head = head.rstrip(" ") if not rest or rest[0] in "\r\n" else head
        return _after(head + rest, key.end_mark.index + 1, step)
    present = _member(servers, name)
    if present is not None:
        return _replaced(text, (section, name), present, value)
    if servers.flow_style:
        end = servers.end_mark.index - 1
        return f"{text[:end].rstrip(', ')}, {_flow({name: value})[1:-1]}{text[end:]}"
    return _after(text, _end(servers), _lines({name: value}, servers.value[0][0].start_mark.column))


def _replaced(text: str, path: tuple[str, ...], present: tuple[Any, Any], value: Mapping[str, Any]) -> str:
    """Replace the member at a path, in the style that it has."""
    key, node = present
    if node.flow_style:
        return text[: node.start_mark.index] + _flow(value) + text[node.end_mark.index :]
    if node.id == "mapping" and node.value:
        return _updated(text, path, node, value)
    return _with_lines(text, present, _lines({path[-1]: value}, key.start_mark.column))


def _updated(text: str, path: tuple[str, ...], node: Any, value: Mapping[str, Any]) -> str:
    """Give a mapping in block style, at a path, other members; those that are equal keep their lines and comments."""
    import yaml  # noqa: PLC0415 - of an extra, which has parsed the text

    present = _read(text, path)
    column = node.value[0][0].start_mark.column
    if added := {key: member for key, member in value.items() if key not in present}:
        text = _after(text, _end(node), _lines(added, column))
    changed = [key for key, member in present.items() if key not in value or member != value[key]]
    for key in changed:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        found = _member(_at(root, path), key)
        if found is None:
            continue
        inner = found[1]
        if (
            inner.id == "mapping"
            and inner.value
            and not inner.flow_style
            and isinstance(value.get(key), dict)
            and value[key]
        ):
            text = _updated(text, (*path, key), inner, value[key])
        else:
            text = _with_lines(text, found, _lines({key: value[key]}, column) if key in value else [])
    return text


def _at(root: Any, path: tuple[str, ...]) -> Any:
    """Node at a path of keys."""
    for name in path:
        found = _member(root, name)
        root = found[1] if found is not None else None
    return root


def _read(text: str, path: tuple[str, ...]) -> Any:
    """Value at a path of keys."""
    document = _parsed(text, "")
    for name in path:
        document = document[name]
    return document


def _with_lines(text: str, member: tuple[Any, Any], lines: list[str]) -> str:
    """Replace a member in block style by lines; a comment after a value of one line is kept."""
    key, node = member
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    end = _line_end(text, _end(node))
    if len(lines) == 1 and node.end_mark.line == key.start_mark.line:
        dumped = lines[0].lstrip().partition(": ")[2]
        return text[: node.start_mark.index] + dumped + text[node.end_mark.index :]
    if not lines:
        after = text[end:]
        return text[:start] + after.removeprefix("\r").removeprefix("\n")
    return text[:start] + _newline(text).join(lines) + text[end:]


def _flow(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _member(node: Any, name: str) -> tuple[Any, Any] | None:
    """Key and value of a member of a mapping; the last one, which is the one that parsers use."""
    members = node.value if node is not None else []
    return next(((key, value) for key, value in reversed(members) if key.value == name), None)


def _column(servers: Any, root: Any) -> int:
    """Column of the first member of an empty mapping: as those of another mapping, by default 2."""
    columns = (
        value.value[0][0].start_mark.column
        for _, value in root.value
        if value is not servers and value.id == "mapping" and value.value and not value.flow_style
    )
    return next(columns, 2)


def _end(node: Any) -> int:
    """End of a value without the comments after it, which the marks of a collection include."""
    while node.id != "scalar" and node.value and not node.flow_style:
        node = node.value[-1][1] if node.id == "mapping" else node.value[-1]
    end: int = node.end_mark.index
    return end


def _line_end(text: str, position: int) -> int:
    """End of the line of a position, before its line break; after a line break, that of the line before."""
    if position and text[position - 1] == "\n":
        position -= 1
    found = text.find("\n", position)
    end = len(text) if found < 0 else found
    return end - 1 if end and text[end - 1] == "\r" else end


def _after(text: str, position: int, lines: list[str]) -> str:
    """Insert lines after the line of a position."""
    end, newline = _line_end(text, position), _newline(text)
    head, rest = text[:end], text[end:]
    return (head + newline if head else "") + newline.join(lines) + (rest if rest.strip("\r\n") else newline)


def _lines(value: Mapping[str, Any], column: int) -> list[str]:
    """Lines of a value in block style, which begin at a column."""
    import yaml  # noqa: PLC0415 - of an extra, which has parsed the text

    dumped = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=_MAX_COLUMNS)
    return [" " * column + line for line in dumped.splitlines()]

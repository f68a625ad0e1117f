"""Setting one member of a mapping in a YAML text; all other lines, including comments, are unchanged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.yaml_reader import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_COLUMNS = 2**16
"""Columns of a line that is written: texts are not broken into several."""


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
        return _after(text[: servers.start_mark.index] + text[servers.end_mark.index :], key.end_mark.index + 1, step)
    present = _member(servers, name)
    if servers.flow_style:
        if present is not None:
            return text[: present[1].start_mark.index] + _flow(value) + text[present[1].end_mark.index :]
        end = servers.end_mark.index - 1
        return f"{text[:end].rstrip(', ')}, {_flow({name: value})[1:-1]}{text[end:]}"
    lines = _lines({name: value}, servers.value[0][0].start_mark.column)
    if present is None:
        return _after(text, _end(servers), lines)
    start = text.rfind("\n", 0, present[0].start_mark.index) + 1
    return text[:start] + _newline(text).join(lines) + text[_line_end(text, _end(present[1])) :]


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

"""Setting one table in a TOML text; comments, order and format of the rest are kept (tomlkit)."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigError, ConfigProblem, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = "\ufeff"
"""Byte order mark, which editors of Windows write and TOML does not have."""
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\r\n])*"'''
    r"""|'''.*?'''|'[^'\r\n]*'|(?P<comment>#[^\r\n]*)""",
    re.DOTALL,
)


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """Set the table ``[section.name]``; errors name the ``source`` of the text.

    Line endings and a byte order mark are kept.

    Raises:
        ConfigError: The text is not TOML.
        MissingExtraError: tomlkit is not installed.
        ValueError: The section, or what it has under the name, is not a table; or the text cannot be edited.
    """
    try:
        import tomlkit  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtraError(f"writing {source}", "tomlkit", "clients") from error
    expected = _parsed(text, source)
    if not isinstance(expected.setdefault(section, {}), dict):
        raise ValueError(f"{source}: its {section!r} is not a table")  # noqa: TRY004 - not an argument's type
    if not isinstance(expected[section].get(name, {}), dict):
        raise ValueError(f"{source}: its '{section}.{name}' is not a table: remove it")  # noqa: TRY004 - likewise
    expected[section][name] = value
    has_returns = 0 < text.count("\n") == text.count("\r\n")
    plain = text.removeprefix(_MARK)
    document = tomlkit.parse(plain.replace("\r\n", "\n") if has_returns else plain)
    kept = Counter(comments(plain))
    if section not in document:
        document[section] = tomlkit.table(is_super_table=True)
    servers: Any = document[section]
    if name in servers:
        trivia = _without_trivia(servers[name])
        kept -= Counter(comments(_text_of(servers[name])))
        _update(servers[name], value)
        _append_trivia(servers[name], trivia)
    elif isinstance(servers, tomlkit.items.InlineTable):
        servers[name] = value
    else:
        _add(servers, name, value)
    edited = tomlkit.dumps(document).rstrip("\n") + "\n"
    if not _is_same(_parsed(edited, source), expected) or kept - Counter(comments(edited)):
        raise ValueError(
            f"{source}: the servers are in a form that cannot be edited; write [{section}.{name}] yourself"
        )
    if has_returns:
        edited = edited.replace("\n", "\r\n")
    return (_MARK if text.startswith(_MARK) else "") + edited


def _add(servers: Any, name: str, value: Mapping[str, Any]) -> None:
    """Add a table after the last one, before the comments that follow that."""
    import tomlkit  # noqa: PLC0415 - of an extra

    trivia = _without_trivia(servers)
    if trivia:
        _append_trivia(servers, [tomlkit.nl()])
    table = tomlkit.table()
    table.update(value)
    servers[name] = table
    _append_trivia(servers[name], trivia or [tomlkit.nl()])


def _update(table: Any, value: Mapping[str, Any]) -> None:
    """Give a table other members; those that are equal keep their text, and all keep their comments."""
    import tomlkit  # noqa: PLC0415 - of an extra

    for key in table.keys() - value.keys():
        del table[key]
    changed = {key: member for key, member in value.items() if key not in table or not _is_same(table[key], member)}
    for key in [key for key in changed if key in table]:
        table[key] = changed.pop(key)
    last = _last_line(table)
    if last is None or any(isinstance(member, dict) for member in changed.values()):
        table.update(changed)
    elif changed:  # after the last key, and before the comments that follow it
        lines = tomlkit.document()
        lines.update(changed)
        last.trivia.trail += tomlkit.dumps(lines)


def _last_line(table: Any) -> Any:
    """Return the last value of a table that has a line of its own; None for none."""
    import tomlkit  # noqa: PLC0415 - of an extra

    if not isinstance(table, tomlkit.items.Table):
        return None
    tables = (tomlkit.items.Table, tomlkit.items.AoT, tomlkit.items.Null)
    values = [item for key, item in table.value.body if key is not None and not isinstance(item, tables)]
    return values[-1] if values and "\n" in values[-1].trivia.trail else None


def _without_trivia(table: Any) -> list[Any]:
    """Take the blank lines and comments off the end of a table, after its last key or that of its last table."""
    import tomlkit  # noqa: PLC0415 - of an extra

    if not isinstance(table, tomlkit.items.Table):
        return []
    taken: list[Any] = []
    body = table.value.body
    while body and body[-1][0] is None and not isinstance(body[-1][1], tomlkit.items.Null):
        taken.insert(0, body.pop()[1])
    return _without_trivia(body[-1][1]) + taken if body else taken


def _append_trivia(table: Any, trivia: list[Any]) -> None:
    """Append blank lines and comments to the end of a table, after its last key or that of its last table."""
    import tomlkit  # noqa: PLC0415 - of an extra

    if not isinstance(table, tomlkit.items.Table):
        return
    body = table.value.body
    items = [item for _, item in body if not isinstance(item, tomlkit.items.Null)]
    if items and isinstance(items[-1], tomlkit.items.Table):
        _append_trivia(items[-1], trivia)
    else:
        body.extend((None, item) for item in trivia)


def _text_of(item: Any) -> str:
    return str(item.as_string()) if hasattr(item, "as_string") else ""


def comments(text: str) -> list[str]:
    """Comments of a text in their order."""
    return [found["comment"] for found in _STRING_OR_COMMENT.finditer(text) if found["comment"] is not None]


def _is_same(one: Any, other: Any) -> bool:
    """True for equal values; NaN equals itself here."""
    return json.dumps(one, sort_keys=True, default=str) == json.dumps(other, sort_keys=True, default=str)


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """Return a table of a section; None if it is missing.

    Raises:
        ConfigError: The text is not TOML.
    """
    inner = _parsed(text, source).get(section)
    return inner.get(name) if isinstance(inner, dict) else None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(_MARK))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(source, [ConfigProblem(f"not TOML: {error}")]) from error

"""Setting one table in a TOML text; comments, order and format of the rest are kept (tomlkit)."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from bridge.errors import ConfigError, ConfigProblem, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping


def with_member(text: str, section: str, name: str, value: Mapping[str, Any], source: str) -> str:
    """Set the table ``[section.name]``; errors name the ``source`` of the text.

    Raises:
        ConfigError: The text is not TOML.
        MissingExtraError: tomlkit is not installed.
        ValueError: The section is not a table.
    """
    try:
        import tomlkit  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtraError(f"writing {source}", "tomlkit", "clients") from error
    expected = _parsed(text, source)
    if not isinstance(expected.setdefault(section, {}), dict):
        raise ValueError(f"{source}: its {section!r} is not a table")  # noqa: TRY004 - not an argument's type
    expected[section][name] = value
    document = tomlkit.parse(text)
    if section not in document:
        document[section] = tomlkit.table(is_super_table=True)
    servers: Any = document[section]
    if name in servers:
        _update(servers[name], value)
    elif isinstance(servers, tomlkit.items.InlineTable):
        servers[name] = value
    else:
        table = tomlkit.table()
        table.update(value)
        table.add(tomlkit.nl())
        servers[name] = table
    edited = tomlkit.dumps(document).rstrip("\n") + "\n"
    if _parsed(edited, source) != expected:
        raise ValueError(
            f"{source}: the servers are in a form that cannot be edited; write [{section}.{name}] yourself"
        )
    return edited


def _update(table: Any, value: Mapping[str, Any]) -> None:
    """Give a table other members; its comments are kept."""
    for key in table.keys() - value.keys():
        del table[key]
    for key, member in value.items():
        table[key] = member


def member_of(text: str, section: str, name: str, source: str) -> Any:
    """Return a table of a section; None if it is missing.

    Raises:
        ConfigError: The text is not TOML.
    """
    inner = _parsed(text, source).get(section)
    return inner.get(name) if isinstance(inner, dict) else None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(source, [ConfigProblem(f"not TOML: {error}")]) from error

"""Sources: the many ways to say which servers are meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from bridge.client.config.servers import HttpTransport, ServerConfig, ServersConfig
from bridge.client.connection import Connection
from bridge.errors import ConfigError, ConfigProblem, DefinitionError

Servers: TypeAlias = (
    "ServersConfig | ServerConfig | Connection | str | os.PathLike[str] | Mapping[str, Any]"
    " | Iterable[ServerConfig | Connection]"
)
"""A configuration, one server, a connection, a URL, the path of a file (``mcp.json#name`` for one of its servers), a
configuration as JSON data, or several servers and connections."""


def servers_from(servers: Servers) -> list[ServerConfig | Connection]:
    """The servers that are meant.

    Args:
        servers: What says it.

    Raises:
        ConfigError: A configuration cannot be used, or has no server of that name.
        DefinitionError: It says nothing of the kind.
    """
    match servers:
        case ServersConfig():
            return list(servers.servers.values())
        case ServerConfig() | Connection():
            return [servers]
        case str() if servers.startswith(("http://", "https://")):
            return [ServerConfig(name=urlsplit(servers).hostname or "server", transport=HttpTransport(servers))]
        case str() | os.PathLike():
            return _in_file(os.fspath(servers))
        case Mapping():
            from bridge.client.config.loading import parse_config  # noqa: PLC0415 - only for those who have data

            return list(parse_config(servers).servers.values())
        case Iterable():
            given = list(servers)
            for server in given:
                if not isinstance(server, ServerConfig | Connection):
                    raise DefinitionError(f"{server!r} is neither a ServerConfig nor a Connection")
            return given
    raise DefinitionError(f"{servers!r} says no servers: give a configuration, its path, or a URL")


def _in_file(source: str) -> list[ServerConfig | Connection]:
    from bridge.client.config.loading import load_config  # noqa: PLC0415 - only for those who have a file

    path, mark, name = source.rpartition("#")
    if not mark or Path(source).exists():
        return list(load_config(source).servers.values())
    config = load_config(path)
    if (server := config.usable(name)) is not None:
        return [server]
    raise ConfigError(path, [ConfigProblem(config.why_missing(name))])

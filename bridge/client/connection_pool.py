"""Server arguments; connections per identity.

Pool: the connections to one server, one for each identity.

An identity is the set of headers that a supplier gives for a call. A connection sends one identity's headers and no
other's from its greeting to its end, so what belongs to one user, sessions included, never serves another.

Sources: the many ways to say which servers are meant.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio

from bridge.client.config.servers import HttpTransport, ServerConfig, ServersConfig
from bridge.client.connection.connection import Connection
from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MAX_IDLE_CONNECTIONS = 100
"""How many connections that nobody uses are kept for each server."""

MAX_IDLE_SECONDS = 300.0
"""How long a connection that nobody uses is kept."""

Identity: TypeAlias = frozenset[tuple[str, str]]

Servers: TypeAlias = (
    "ServersConfig | ServerConfig | Connection | str | os.PathLike[str] | Mapping[str, Any]"
    " | Iterable[ServerConfig | Connection]"
)
"""A configuration, one server, a connection, a URL, the path of a file (``mcp.json#name`` for one of its servers), a
configuration as JSON data, or several servers and connections."""


@dataclass(slots=True, eq=False)
class _Entry:
    connection: Connection
    users: int
    idle_since: float


class ConnectionPool:
    """Connections to one server by identity. They belong to the event loop in which they are opened.

    Args:
        config: The server, with the headers that everyone shares.
        connect: Makes a connection, not opened yet.
        max_idle: How many unused connections are kept.
        max_idle_seconds: How long an unused connection is kept.
    """

    def __init__(
        self,
        config: ServerConfig,
        connect: Callable[[ServerConfig], Connection],
        *,
        max_idle: int = MAX_IDLE_CONNECTIONS,
        max_idle_seconds: float = MAX_IDLE_SECONDS,
    ) -> None:
        self._config = config
        self._connect = connect
        self._max_idle = max_idle
        self._max_idle_seconds = max_idle_seconds
        self._entries: dict[Identity, _Entry] = {}
        self._ending: set[Connection] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def connection(self, headers: Mapping[str, str]) -> AsyncIterator[Connection]:
        """The connection that sends these headers, open, for one use.

        Args:
            headers: What goes with every request beside the configured headers, and before them.

        Raises:
            ServerUnavailableError: The server cannot be reached as this identity.
            DefinitionError: The headers are not text.
        """
        identity = _identity(headers, self._config.name)
        entry = self._entries.get(identity)
        if entry is None:
            entry = self._entries[identity] = _Entry(self._connect(with_headers(self._config, headers)), 0, 0.0)
        entry.users += 1
        try:
            if not self._is_closed:
                await entry.connection.open()
            yield entry.connection
        finally:
            entry.users -= 1
            entry.idle_since = anyio.current_time()
            self._entries[identity] = self._entries.pop(identity, entry)  # used last, so dropped last
            self.drop_idle()

    def drop_idle(self) -> None:
        """End the connections that nobody has used for too long, and those that are too many."""
        idle = [(identity, entry) for identity, entry in self._entries.items() if not entry.users]
        latest = anyio.current_time() - self._max_idle_seconds
        surplus = len(idle) - self._max_idle
        for place, (identity, entry) in enumerate(idle):
            if place < surplus or entry.idle_since <= latest or self._is_closed:
                del self._entries[identity]
                self._end(entry.connection)

    async def aclose(self) -> None:
        """End all connections, those in use too."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for connection in (*self._ending, *(entry.connection for entry in self._entries.values())):
                tasks.start_soon(connection.aclose)

    def _end(self, connection: Connection) -> None:
        async def end() -> None:
            await connection.aclose()
            self._ending.discard(connection)

        self._ending.add(connection)
        start_detached(end, f"end of a connection to {self._config.name}")


def with_headers(config: ServerConfig, headers: Mapping[str, str]) -> ServerConfig:
    """A server that is sent these headers beside, and instead of, those that are configured."""
    transport = config.transport
    if not headers or not isinstance(transport, HttpTransport):
        return config
    given = {name.lower() for name in headers}
    kept = {name: value for name, value in transport.headers.items() if name.lower() not in given}
    return replace(config, transport=replace(transport, headers={**kept, **headers}))


def _identity(headers: Mapping[Any, Any], server: str) -> Identity:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise DefinitionError(
                f"the headers for the server {server!r} must be text, not {type(name).__name__}: {type(value).__name__}"
            )
    return frozenset((name.lower(), value) for name, value in headers.items())


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

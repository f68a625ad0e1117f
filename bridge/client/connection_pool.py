"""Pool of connections to one server, one connection for each identity.

An identity is the set of headers that a header supplier returns for a call. A connection sends the headers of one
identity only, so state such as sessions is never shared between users.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import anyio

from bridge.client.config.servers import ServerConfig, ServersConfig
from bridge.client.connection.connection import Connection
from bridge.client.transports.http import HttpTransport
from bridge.client.transports.stdio import StdioTransport
from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

MAX_IDLE_CONNECTIONS = 100
"""Maximum idle connections to each server."""

MAX_IDLE_SECONDS = 300.0
"""Seconds before an idle connection is closed."""

Identity: TypeAlias = frozenset[tuple[str, str]]

Servers: TypeAlias = (
    "ServersConfig | ServerConfig | Connection | str | os.PathLike[str] | Mapping[str, Any]"
    " | Iterable[ServerConfig | Connection]"
)
"""A configuration, one server, a connection, a URL, a file path (``mcp.json``; ``mcp.json#name`` selects one of its
servers; ``tools.py`` is served over stdio), configuration data, or several servers and connections."""


@dataclass(slots=True, eq=False)
class _Entry:
    connection: Connection
    users: int
    idle_since: float


class ConnectionPool:
    """Connections to one server, by identity, created by `connect`. They belong to the event loop that opened them."""

    def __init__(self, config: ServerConfig, connect: Callable[[ServerConfig], Connection]) -> None:
        self._config = config
        self._connect = connect
        self._entries: dict[Identity, _Entry] = {}
        self._ending: set[Connection] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def connection(self, headers: Mapping[str, str]) -> AsyncIterator[Connection]:
        """Borrow the open connection that sends these headers, which take precedence over the configured ones.

        Raises:
            ServerUnavailableError: The server cannot be reached with these headers.
            DefinitionError: A header name or value is not a string.
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
            self._entries[identity] = self._entries.pop(identity, entry)  # most recently used last, evicted last
            self.drop_idle()

    def drop_idle(self) -> None:
        """Close the connections that were idle for too long, and the oldest ones beyond the maximum."""
        idle = [(identity, entry) for identity, entry in self._entries.items() if not entry.users]
        latest = anyio.current_time() - MAX_IDLE_SECONDS
        surplus = len(idle) - MAX_IDLE_CONNECTIONS
        for place, (identity, entry) in enumerate(idle):
            if place < surplus or entry.idle_since <= latest or self._is_closed:
                del self._entries[identity]
                self._ending.add(entry.connection)
                start_detached(partial(self._end, entry.connection), f"end of a connection to {self._config.name}")

    async def aclose(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for connection in (*self._ending, *(entry.connection for entry in self._entries.values())):
                tasks.start_soon(connection.aclose)

    async def _end(self, connection: Connection) -> None:
        await connection.aclose()
        self._ending.discard(connection)


def with_headers(config: ServerConfig, headers: Mapping[str, str]) -> ServerConfig:
    """Copy the server configuration with these headers merged over the configured ones."""
    if not headers or not config.transport.takes_headers:
        return config
    return replace(config, transport=config.transport.with_headers(headers))


def _identity(headers: Mapping[Any, Any], server: str) -> Identity:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise DefinitionError(
                f"the headers for the server {server!r} must be text, not {type(name).__name__}: {type(value).__name__}"
            )
    return frozenset((name.lower(), value) for name, value in headers.items())


def servers_from(servers: Servers) -> list[ServerConfig | Connection]:
    """Resolve an argument to a list of servers and connections.

    Raises:
        ConfigError: The configuration is invalid, or has no server of that name.
        DefinitionError: The argument has another type.
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
            from bridge.client.config.loading import parse_config  # noqa: PLC0415 - only for configuration data

            return list(parse_config(servers).servers.values())
        case Iterable():
            given = list(servers)
            for server in given:
                if not isinstance(server, ServerConfig | Connection):
                    raise DefinitionError(f"{server!r} is neither a ServerConfig nor a Connection")
            return given
    raise DefinitionError(f"{servers!r} does not name any server: give a configuration, its path, or a URL")


def _in_file(source: str) -> list[ServerConfig | Connection]:
    from bridge.client.config.loading import load_config  # noqa: PLC0415 - only for configuration files

    if source.endswith(".py"):
        return [_python_server(source)]
    path, mark, name = source.rpartition("#")
    if not mark or Path(source).exists():
        return list(load_config(source).servers.values())
    config = load_config(path)
    if (server := config.usable(name)) is not None:
        return [server]
    raise ConfigError(path, [ConfigProblem(config.why_missing(name))])


async def all_at_once(functions: Iterable[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    """Run functions concurrently; the first error cancels the others, and is raised as it is."""
    try:
        async with anyio.create_task_group() as tasks:
            for function in functions:
                tasks.start_soon(function)
    except ExceptionGroup as group:
        leaf: Exception = group
        while isinstance(leaf, ExceptionGroup):
            leaf = leaf.exceptions[0]
        raise leaf from leaf.__cause__


def _python_server(path: str) -> ServerConfig:
    """Server of a Python file's tools: a process of this Python that serves the file over stdio."""
    if not Path(path).is_file():
        raise ConfigError(path, [ConfigProblem("there is no such file")])
    return ServerConfig(
        name=Path(path).stem, transport=StdioTransport(sys.executable, args=("-m", "bridge", "serve", path))
    )

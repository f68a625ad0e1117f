"""Pools of connections to one server, one connection for each key.

The key of a `ConnectionPool` is an identity: the set of headers that a header supplier returns for a call. A
connection sends the headers of one identity only, so state such as sessions is never shared between users.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio

from bridge.client.config.servers import ServerConfig, ServersConfig
from bridge.client.connection.connection import Connection
from bridge.client.connection.status import ConnectionState
from bridge.client.transports.http import HttpTransport
from bridge.client.transports.stdio import StdioTransport
from bridge.client.transports.transport import Transport
from bridge.errors import ConfigError, ConfigProblem, DefinitionError
from bridge.portal import start_detached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from bridge.tools.context import InvocationContext

MAX_IDLE_CONNECTIONS = 100
"""Maximum idle connections to each server."""

MAX_IDLE_SECONDS = 300.0
"""Seconds before an idle connection is closed."""

MAX_REFRESH_SECONDS = 5.0
"""Maximum seconds for which tools wait for lists that have expired."""

HeaderSupplier: TypeAlias = "Callable[[str, InvocationContext], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]"
"""Returns headers or ``_meta`` of a call; called with the server's name and the invocation context."""

K = TypeVar("K", bound=Hashable)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)

Identity: TypeAlias = frozenset[tuple[str, str]]

_OneServer: TypeAlias = "ServerConfig | Connection"
# In one piece: Pyright takes an alias of several strings as unknown.
Servers: TypeAlias = "ServersConfig | _OneServer | str | os.PathLike[str] | Mapping[str, Any] | Iterable[_OneServer]"
"""A configuration, one server, a connection, a URL, a file path (``mcp.json``; ``mcp.json#name`` selects one of its
servers; ``tools.py`` is served over stdio), configuration data, or several servers and connections."""


@dataclass(slots=True, eq=False)
class _Entry:
    connection: Connection
    users: int
    idle_since: float


class KeyedConnections(Generic[K]):
    """Connections to one server, by key. They belong to the event loop that opened them.

    Args:
        server: Name of the server.
        connect: Creates the connection of a key.
        owner_of: Returns the owner of a key: beyond the maximum of idle connections, the owner with the most of them
            loses the oldest one. None if all have the same.
    """

    def __init__(
        self, server: str, connect: Callable[[K], Connection], owner_of: Callable[[K], Hashable] | None = None
    ) -> None:
        self._server = server
        self._connect = connect
        self._owner_of = owner_of
        self._entries: dict[K, _Entry] = {}
        self._ending: set[Connection] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def max_idle(self) -> int:
        """Maximum idle connections."""
        return MAX_IDLE_CONNECTIONS

    @property
    def idle_seconds(self) -> float:
        """Seconds after which an idle connection is closed."""
        return MAX_IDLE_SECONDS

    @asynccontextmanager
    async def borrowed(self, key: K) -> AsyncIterator[Connection]:
        """Borrow the open connection of a key.

        Raises:
            ServerUnavailableError: The server cannot be reached.
        """
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self._connect(key), 0, 0.0)
        entry.users += 1
        try:
            if not self._is_closed:
                await entry.connection.open()
            yield entry.connection
        finally:
            self._leave(key, entry)

    def lease(self, key: K, *, is_ready: bool = True) -> tuple[Connection, Callable[[], None]] | None:
        """Borrow the connection of a key without waiting; None if there is none.

        Args:
            key: The key.
            is_ready: Borrow it only if it is ready.

        Returns:
            The connection, and a function to be called once, when it is not used any more.
        """
        entry = self._entries.get(key)
        if entry is None or (is_ready and entry.connection.state is not ConnectionState.READY):
            return None
        entry.users += 1
        return entry.connection, partial(self._leave, key, entry, closes_idle=False)  # in a callback of a transport

    def _leave(self, key: K, entry: _Entry, *, closes_idle: bool = True) -> None:
        entry.users -= 1
        if self._entries.get(key) is entry:
            entry.idle_since = monotonic()
            self._entries[key] = self._entries.pop(key)  # most recently used last, evicted last
            if closes_idle and not entry.users:
                self.drop_idle()

    @property
    def is_busy(self) -> bool:
        """True while connections are used."""
        return any(entry.users for entry in self._entries.values())

    def drop_idle(self) -> None:
        """Close the connections that were idle for too long, and the oldest ones beyond the maximum."""
        latest = monotonic() - self.idle_seconds
        if self._is_closed or len(self._entries) > self.max_idle:
            idle = [key for key, entry in self._entries.items() if not entry.users]
            for key in idle if self._is_closed else self._surplus(idle):
                self.discard(key)
        for key, entry in tuple(self._entries.items()):
            if entry.idle_since > latest:
                break
            if not entry.users:
                self.discard(key)

    def _surplus(self, idle: list[K]) -> list[K]:
        """Return the connections to close, so that each owner keeps about as many."""
        count = len(idle) - self.max_idle
        if count <= 0 or self._owner_of is None:
            return idle[: max(count, 0)]
        by_owner: dict[Hashable, list[K]] = {}
        for key in idle:
            by_owner.setdefault(self._owner_of(key), []).append(key)
        return [max(by_owner.values(), key=len).pop(0) for _ in range(count)]

    def discard(self, key: K) -> None:
        """Close the connection of a key, also if it is used; the next user opens another one."""
        if (entry := self._entries.pop(key, None)) is not None:
            self._ending.add(entry.connection)
            self._discarded(entry.connection)
            start_detached(partial(self._end, entry.connection), f"end of a connection to {self._server}")

    def _discarded(self, connection: Connection) -> None:
        """Called with a connection that is about to be closed."""

    async def aclose(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        async with anyio.create_task_group() as tasks:
            for connection in (*self._ending, *(entry.connection for entry in self._entries.values())):
                tasks.start_soon(connection.aclose)

    async def _end(self, connection: Connection) -> None:
        await connection.aclose()
        self._ending.discard(connection)


class ConnectionPool(KeyedConnections[Identity]):
    """Connections to one server, by the headers that they send, created by `connect`."""

    def __init__(self, config: ServerConfig, connect: Callable[[ServerConfig], Connection]) -> None:
        super().__init__(config.name, lambda identity: connect(with_headers(config, dict(identity))))

    def connection(self, headers: Mapping[str, str]) -> AbstractAsyncContextManager[Connection]:
        """Borrow the open connection that sends these headers, which take precedence over the configured ones.

        Raises:
            ServerUnavailableError: The server cannot be reached with these headers.
            DefinitionError: A header name or value is not a string.
        """
        return self.borrowed(_identity(headers, self._server))


async def supplied(supplier: HeaderSupplier, server: str, context: InvocationContext) -> Mapping[str, Any]:
    """Return what a supplier returns for a call."""
    headers = supplier(server, context)
    return await headers if inspect.isawaitable(headers) else headers


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
        case Transport():
            raise DefinitionError(
                f"a transport has no name: ServerConfig(name=…, transport={type(servers).__name__}(…))"
            )
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


def require_unique(servers: Iterable[N]) -> dict[str, N]:
    """Return servers by name.

    Raises:
        DefinitionError: Two have the same name.
    """
    found: dict[str, N] = {}
    for server in servers:
        if server.name in found:
            raise DefinitionError(f"two servers are named {server.name!r}: rename one")
        found[server.name] = server
    return found


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

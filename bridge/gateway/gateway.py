"""Gateway, merged configurations, forwarded headers.

Gateway: the tools of many servers, and local ones beside them, in one ToolBox that is fit to be served.

Gateway ── .tools ── local tools under their names; remote ones, passed through, under names that are free
   ╰── McpToolProvider ── the servers (`bridge.client.provider`)

Headers: which of a caller's headers a gateway hands on.

Merging: the servers of several configurations, under names that are all different.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Self

import anyio

from bridge.client.provider import McpToolProvider
from bridge.client.redaction import names_secret
from bridge.client.remote_tool import RemoteExecutor
from bridge.errors import DefinitionError
from bridge.gateway.proxy import ProxyExecutor, proxy_handlers
from bridge.gateway.suspended_calls import HELD_SECONDS, MAX_HELD_CALLS, SuspendedCalls
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    import httpx2

    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.state import Healing
    from bridge.client.tool_catalog import ServerStatus
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool

_logger = logging.getLogger("bridge.gateway")

START_SECONDS = 10.0
"""How long the start waits for servers: a client that is told of changes gets the tools of later ones too."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")

_OF_THE_CONNECTION = frozenset(
    {
        *("accept", "accept-encoding", "connection", "host", "keep-alive", "last-event-id", "te", "trailer"),
        *("transfer-encoding", "upgrade", "origin", "referer"),
    }
)

_PREFIXES = ("content-", "mcp-", "proxy-", "sec-")


class Gateway:
    """Remote servers, to be served again as one. It belongs to the event loop in which it is opened.

    Serve `tools` with a `bridge.server.publisher.Publisher`, over any transport, while the gateway is open.

    Args:
        servers: The servers; their names are all different (see `bridge.gateway.gateway.merged_servers`).
        local: Tools beside them, which keep their names; the gateway follows its changes.
        prefix: When a server's name stands before the names of its tools, as for
            `bridge.client.provider.McpToolProvider`.
        forward_headers: The headers of a caller that are handed on to servers over HTTP. None unless named here, and
            none that proves who somebody is.
        held_seconds: How long a call of a server of the handshake era waits for the answer of a caller of the modern
            one.
        max_held_calls: How many may wait at once.
        start_seconds: How long opening waits for servers that are not required; the tools of later ones come later.
        auth: Gives what signs a server's HTTP requests; None for the configured headers alone.
        healing: How soon a lost server is tried again.

    Raises:
        DefinitionError: Two servers have one name, or a header cannot be handed on.
    """

    def __init__(
        self,
        servers: Iterable[ServerConfig] = (),
        *,
        local: ToolBox | None = None,
        prefix: Prefixing | None = None,
        forward_headers: Iterable[str] = (),
        held_seconds: float = HELD_SECONDS,
        max_held_calls: int = MAX_HELD_CALLS,
        start_seconds: float = START_SECONDS,
        auth: Callable[[ServerConfig], httpx2.Auth | None] | None = None,
        healing: Healing | None = None,
    ) -> None:
        self.tools = ToolBox()
        """What is to be served."""
        self._local = ToolBox() if local is None else local
        self.provider = McpToolProvider(
            list(servers),
            prefix=prefix,
            local=self._local,  # it follows the changes before this gateway does
            handlers=proxy_handlers(),
            headers_supplier=forwarded_headers(forward_headers),
            auth=auth,
            healing=healing,
            validates_results=False,
        )
        """The servers."""
        self._start_seconds = start_seconds
        self._holding = SuspendedCalls(held_seconds=held_seconds, max_held_calls=max_held_calls)
        self._local.on_change(self._rebuild)
        self.provider.tools.on_change(self._rebuild)
        self._rebuild()

    async def open(self) -> None:
        """Open all servers at once, and wait until those that are there are listed.

        Raises:
            ServerError: A required server cannot be reached or listed; everything is closed again.
        """
        try:
            await self.provider.open(wait=False)
            with anyio.move_on_after(self._start_seconds):
                await self.provider.settled()
            if required := [each.name for each in self.status() if each.required]:
                await self.provider.settled(*required)
            for status in self.status():
                _check(status)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise

    async def aclose(self) -> None:
        """End all connections, and every call that waits for an answer."""
        self._holding.cancel_all()
        await self.provider.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._holding.cancel_all()
        await self.provider.__aexit__(kind, error, traceback)

    async def reconfigure(self, servers: Iterable[ServerConfig], *, wait: bool = True) -> None:
        """Let exactly these servers be here. Only those that changed are ended and started.

        Args:
            servers: As for the constructor.
            wait: Return when each new server's tools are listed, or it is known that they cannot be now.

        Raises:
            ServerError: A required server cannot be reached or listed.
            DefinitionError: Two servers have one name.
        """
        await self.provider.reconfigure(list(servers), wait=wait)

    def status(self) -> tuple[ServerStatus, ...]:
        """How each server is now."""
        return self.provider.status()

    def _rebuild(self) -> None:
        connections, origins = self.provider.connections, self.provider.origins
        remote: list[Tool] = []
        for tool in self.provider.tools:
            executor = tool.executor
            if isinstance(executor, RemoteExecutor):
                connection = connections[origins[tool.name].server]
                remote.append(replace(tool, executor=ProxyExecutor(executor, connection, self._holding)))
        self.tools.replace([*self._local, *remote])


def _check(status: ServerStatus) -> None:
    """Say that a server is not there.

    Raises:
        ServerError: It is required.
    """
    if status.is_listed:
        return
    if status.required and status.problem is not None:
        raise status.problem
    reason = status.problem or "it is still starting"
    _logger.warning("going on without the server %r until it is there: %s", status.name, reason)


def forwarded_headers(names: Iterable[str]) -> Callable[[str, InvocationContext], Mapping[str, str]] | None:
    """What hands on some of a caller's headers; None where there are none to hand on.

    Args:
        names: The headers, whatever their case.

    Raises:
        DefinitionError: One is no header, belongs to the connection, or carries what proves who somebody is: a token
            that was meant for this server is never shown to another (MCP, "Token Passthrough").
    """
    allowed = tuple(dict.fromkeys(_checked(name) for name in names))
    if not allowed:
        return None

    def supply(_server: str, context: InvocationContext) -> Mapping[str, str]:
        headers = context.headers
        return {name: headers[name] for name in allowed if name in headers and _VALUE.fullmatch(headers[name])}

    return supply


def _checked(name: str) -> str:
    lower = name.strip().lower()
    if not _NAME.fullmatch(lower):
        raise DefinitionError(f"{name!r} is no name of a header")
    if names_secret(lower) and not lower.startswith("mcp-"):
        raise DefinitionError(
            f"the header {name!r} carries a secret that was meant for this server, and is never handed on: "
            "give each server a credential of its own in its 'headers'"
        )
    if lower in _OF_THE_CONNECTION or lower.startswith(_PREFIXES):
        raise DefinitionError(f"the header {name!r} belongs to one connection, and cannot be handed on")
    return lower


def merged_servers(groups: Iterable[tuple[str, Iterable[ServerConfig]]]) -> list[ServerConfig]:
    """The servers of several sources together.

    A server that two sources describe alike is one server. Of different ones with one name, the first keeps it, and
    the others have their source's name before it.

    Args:
        groups: For each source what it is called, such as a file's stem, and its servers.
    """
    merged: dict[str, ServerConfig] = {}
    for label, servers in groups:
        for server in servers:
            name = next(each for each in _names(label, server) if _is_free(each, server, merged))
            merged[name] = server if name == server.name else replace(server, name=name)
    return list(merged.values())


def _names(label: str, server: ServerConfig) -> Iterator[str]:
    yield server.name
    yield f"{label}-{server.name}"
    for number in count(2):
        yield f"{label}-{server.name}-{number}"


def _is_free(name: str, server: ServerConfig, merged: dict[str, ServerConfig]) -> bool:
    present = merged.get(name)
    return present is None or present == replace(server, name=name)

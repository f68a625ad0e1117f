"""Synchronous client for programs without an event loop.

    with bridge.connect("mcp.json") as servers:
        print(servers.call("add", a=1, b=2).text)

All I/O runs in the portal thread (`bridge.portal`), on the same `McpToolProvider` that asynchronous programs use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar

from bridge import portal
from bridge.client.provider import McpToolProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    import httpx2
    from typing_extensions import Unpack

    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection.state import ReconnectPolicy
    from bridge.client.connection_pool import Servers
    from bridge.client.resources import RemoteResource
    from bridge.client.tool_catalog import NameMapper, ServerStatus, ToolFilter
    from bridge.client.upstream import HeaderSupplier
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import ToolExecutionResult
    from bridge.tools.toolbox import ToolBox

_T = TypeVar("_T")


class ProviderOptions(TypedDict, total=False):
    """Keyword arguments of `McpToolProvider`; callbacks run in the portal thread."""

    handlers: ClientHandlers | None
    filter: ToolFilter | None
    name_mapper: NameMapper | None
    prefix: Prefixing | None
    local: ToolBox | None
    headers_supplier: HeaderSupplier | None
    meta_supplier: HeaderSupplier | None
    auth: Callable[[ServerConfig], httpx2.Auth | None] | None
    reconnect: ReconnectPolicy | None
    resources: bool
    validates_results: bool


class BlockingToolProvider:
    """Blocking client for remote tools, created by `connect`; safe to use from any thread.

    Args:
        provider: An open provider that belongs to the portal's event loop.
    """

    def __init__(self, provider: McpToolProvider) -> None:
        self._provider = provider
        self._process_id = os.getpid()

    def _run(self, function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Run a coroutine function in the portal's event loop.

        Raises:
            RuntimeError: The connections belong to another process.
        """
        self._check_process()
        return portal.run_in_portal(function, *arguments)

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise RuntimeError(
                f"these connections belong to the process {self._process_id}, and this process is a fork of it: "
                "call connect() in each process after the fork"
            )

    @property
    def tools(self) -> ToolBox:
        """Current tools, updated when a server's tools change. They run in the portal's event loop."""
        self._check_process()
        return self._provider.tools

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> ToolExecutionResult:
        """Call a tool by its local name and wait for its result; see `McpToolProvider.call`."""
        return self._run(lambda: self._provider.call(name, arguments, context=context, **more))

    def list_resources(self, server: str) -> tuple[RemoteResource, ...]:
        """List a server's resources; see `bridge.client.resources.Resources.list`."""
        return self._run(self._provider.resources.list, server)

    def read_resource(self, server: str, uri: str) -> tuple[Content, ...]:
        """Read a resource; see `bridge.client.resources.Resources.read`."""
        return self._run(self._provider.resources.read, server, uri)

    def add(self, servers: Servers) -> None:
        """Add servers; see `McpToolProvider.add`."""
        self._run(self._provider.add, servers)

    def remove(self, *names: str) -> None:
        """Remove servers; see `McpToolProvider.remove`."""
        self._run(self._provider.remove, *names)

    def refresh(self) -> None:
        """List the tools of every server again."""
        self._run(self._provider.refresh)

    def status(self) -> tuple[ServerStatus, ...]:
        """Current status of each server."""

        async def read_status() -> tuple[ServerStatus, ...]:
            return self._provider.status()

        return self._run(read_status)

    def close(self) -> None:
        """Close all connections. Idempotent; does nothing in a forked process."""
        if os.getpid() == self._process_id:
            self._run(self._provider.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(servers: Servers, /, **options: Unpack[ProviderOptions]) -> BlockingToolProvider:
    """Connect to servers from a program without an event loop; asynchronous programs use `McpToolProvider`.

    Args:
        servers: A configuration, its path (``mcp.json``, or ``mcp.json#name`` for one of its servers), a URL, or
            servers.
        options: Keyword arguments of `McpToolProvider`.

    Returns:
        The connected servers, as a context manager that closes the connections.

    Raises:
        ConfigError: The configuration is invalid.
        ServerError: A required server cannot be reached, or its tools cannot be listed.
    """

    async def opened() -> McpToolProvider:
        provider = McpToolProvider(servers, **options)
        await provider.open()
        return provider

    return BlockingToolProvider(portal.run_in_portal(opened))

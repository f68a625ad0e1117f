"""The synchronous facade: remote tools for a program without an event loop.

    with bridge.connect("mcp.json") as servers:
        print(servers.call("add", a=1, b=2).text)

Everything runs in the one portal thread (`bridge.portal`), over the same `McpToolProvider` that an asynchronous
program uses.
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
    from bridge.client.connection.state import Healing
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
    """The keywords of `McpToolProvider`; what they are given is called in the portal thread."""

    handlers: ClientHandlers | None
    filter: ToolFilter | None
    name_mapper: NameMapper | None
    prefix: Prefixing | None
    local: ToolBox | None
    headers_supplier: HeaderSupplier | None
    meta_supplier: HeaderSupplier | None
    auth: Callable[[ServerConfig], httpx2.Auth | None] | None
    healing: Healing | None
    resources: bool
    validates_results: bool


class BlockingToolProvider:
    """Remote tools whose every call blocks the calling thread; any thread may call. Made by `connect`.

    Args:
        provider: An open provider that belongs to the portal's event loop.
    """

    def __init__(self, provider: McpToolProvider) -> None:
        self._provider = provider
        self._process_id = os.getpid()

    def _run(self, function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Run something where the connections live.

        Raises:
            RuntimeError: They were left behind in another process.
        """
        self._check_process()
        return portal.run_in_portal(function, *arguments)

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise RuntimeError(
                f"these connections belong to the process {self._process_id}, of which this one is a fork: "
                "call connect() in each process, after it was forked"
            )

    @property
    def tools(self) -> ToolBox:
        """The tools now; follows the servers. They run in the portal's event loop, as synchronous AI services do."""
        self._check_process()
        return self._provider.tools

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        context: InvocationContext | None = None,
        **more: Any,
    ) -> ToolExecutionResult:
        """Call a tool and wait for its result.

        Args:
            name: The name that it has here.
            arguments: Its arguments by name.
            context: What surrounds the call. An argument of this name goes into ``arguments``.
            more: More arguments, as keywords.

        Returns:
            The result; a failure, the server's absence included, is one with ``is_error``.
        """
        given = {**(arguments or {}), **more}
        return self._run(lambda: self._provider.call(name, given, context=context))

    def list_resources(self, server: str) -> tuple[RemoteResource, ...]:
        """What a server has to read; see `bridge.client.resources.Resources.list`."""
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
        """Have every server's tools listed again."""
        self._run(self._provider.refresh)

    def status(self) -> tuple[ServerStatus, ...]:
        """How each server is now."""

        async def ask() -> tuple[ServerStatus, ...]:
            return self._provider.status()

        return self._run(ask)

    def close(self) -> None:
        """End all connections. Any number of times; in a fork there is nothing to end."""
        if os.getpid() == self._process_id:
            self._run(self._provider.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def connect(servers: Servers, /, **options: Unpack[ProviderOptions]) -> BlockingToolProvider:
    """Connect to servers, for a program without an event loop; an asynchronous one uses `McpToolProvider`.

    Args:
        servers: A configuration, its path (``mcp.json``, or ``mcp.json#name`` for one of its servers), a URL, or
            servers.
        options: The keywords of `McpToolProvider`.

    Returns:
        The connected servers: a context manager that ends the connections.

    Raises:
        ConfigError: The configuration cannot be used.
        ServerError: A required server cannot be reached or listed.
    """

    async def opened() -> McpToolProvider:
        provider = McpToolProvider(servers, **options)
        await provider.open()
        return provider

    return BlockingToolProvider(portal.run_in_portal(opened))

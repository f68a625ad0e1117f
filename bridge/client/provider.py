"""McpToolProvider: the tools of remote servers as local ones, for as long as the program runs.

McpToolProvider ── opens, names, tells of changes
    ├── .tools ── a live ToolBox that follows the servers
    ╰── Upstream, one for each server ── lists, and calls as whoever calls (`bridge.client.upstream`)
          ╰── Connection ── heals (`bridge.client.connection`)
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from bridge.client.connection.connection import Connection
from bridge.client.connection.state import ConnectionState, Healing, Listeners
from bridge.client.connection_pool import servers_from
from bridge.client.resources import Resources
from bridge.client.tool_catalog import EMPTY, CatalogRules, ServerStatus, ToolsChange
from bridge.client.upstream import Upstream
from bridge.errors import DefinitionError, ServerError
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.tool import ToolExecutionRequest
from bridge.tools.toolbox import ToolBox

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType

    import httpx2

    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.handlers import ClientHandlers
    from bridge.client.connection_pool import Servers
    from bridge.client.tool_catalog import NameMapper, RemoteName, ToolCatalog, ToolFilter
    from bridge.client.upstream import HeaderSupplier
    from bridge.tools.tool import Tool, ToolExecutionResult, ToolProviderRequest

_logger = logging.getLogger("bridge.client")


class McpToolProvider:
    """Tools of MCP servers (LangChain4j's McpToolProvider). It belongs to the event loop in which it is opened.

    Args:
        servers: A configuration, servers, connections, a URL, or the path of an ``mcp.json`` (``mcp.json#name`` for
            one of its servers). A connection that is open already stays open.
        handlers: Who answers what the servers ask; None for nobody. Connections that are given have their own.
        filter: Which tools are taken of those that the configuration admits; None for all.
        name_mapper: What tools are to be called; None for their own names after the configured prefix.
        prefix: When a server's name stands before the names of its tools: ``always``, ``on_collision`` (before a name
            that another tool has too) or ``never`` (such a tool is left out). None for what the configuration says,
            and where that says nothing, ``always`` with several servers and ``on_collision`` with one.
        local: Tools of this program that are used beside these; no remote tool gets the name of one.
        headers_supplier: Gives the headers of a call to a server over HTTP, beside and before those configured. Each
            set of headers has a connection of its own. Lists are made with what it gives for an empty context.
        meta_supplier: Gives what goes with a call in ``_meta``, beside and before what its own caller said there.
        auth: Gives what signs a server's HTTP requests; None for what the configuration says.
        healing: How soon a lost server is tried again.
        resources: Let the model list and read the servers' resources, by two tools.
        validates_results: Check structured content against output schemas.
    """

    def __init__(
        self,
        servers: Servers = (),
        *,
        handlers: ClientHandlers | None = None,
        filter: ToolFilter | None = None,  # noqa: A002 - LangChain4j's word
        name_mapper: NameMapper | None = None,
        prefix: Prefixing | None = None,
        local: ToolBox | None = None,
        headers_supplier: HeaderSupplier | None = None,
        meta_supplier: HeaderSupplier | None = None,
        auth: Callable[[ServerConfig], httpx2.Auth | None] | None = None,
        healing: Healing | None = None,
        resources: bool = False,
        validates_results: bool = True,
    ) -> None:
        self.tools = ToolBox()
        """The tools now, by the names that they have here; follows the servers, and tells its listeners."""
        self.resources = Resources(lambda: self._upstreams)
        """The servers' resources."""
        self._handlers = handlers
        self._healing = healing or Healing()
        self._auth = auth
        self._cataloguing = CatalogRules(filter=filter, name_mapper=name_mapper, prefix=prefix)
        self._headers_supplier = headers_supplier
        self._meta_supplier = meta_supplier
        self._offers_resources = resources
        self._validates_results = validates_results
        self._catalogue: ToolCatalog = EMPTY
        self._upstreams: dict[str, Upstream] = {}
        self._local = ToolBox() if local is None else local
        self._local.on_change(self._rebuild)
        self._is_open = False
        self._is_holding = False
        self._change_listeners = Listeners[[ToolsChange]]()
        self._state_listeners = Listeners[[str, ConnectionState]]()
        for server in servers_from(servers):
            self._adopt(server)

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def open(self, *, wait: bool = True) -> None:
        """Open all servers at once.

        Args:
            wait: Return when each server's tools are listed, or it is known that they cannot be now. Otherwise return
                at once; tools appear as they are listed.

        Raises:
            ServerError: A required server cannot be reached or listed; everything is closed again.
        """
        self._is_open = True
        await self._start(list(self._upstreams.values()), wait=wait)

    async def settled(self, *names: str) -> None:
        """Wait until servers' tools are listed for the first time, or it is known that they cannot be now.

        Args:
            names: Which servers; none for all.
        """
        wanted = [upstream for name, upstream in self._upstreams.items() if not names or name in names]
        await _all_at_once(upstream.settled for upstream in wanted)

    async def aclose(self) -> None:
        """End all connections. The tools stay listed, and say that they cannot be called. From any task."""
        self._is_open = False
        await _all_at_once(upstream.aclose for upstream in self._upstreams.values())

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # a connection's end is bounded by itself
            await self.aclose()

    # --- tools -------------------------------------------------------------------------------------------------------

    @property
    def is_dynamic(self) -> bool:
        """The tools may change between two calls of a model."""
        return True

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:  # noqa: ARG002 - the protocol's
        """The tools now; lists that have expired are asked for again first."""
        await _all_at_once(upstream.refresh for upstream in self._upstreams.values() if upstream.has_expired)
        return tuple(self.tools)

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, context: InvocationContext | None = None
    ) -> ToolExecutionResult:
        """Call a tool by the name that it has here.

        Args:
            name: The name.
            arguments: The arguments, sent as given.
            context: What surrounds the call; None for nothing.

        Returns:
            The result; a failure, the server's absence included, is one with ``is_error``.
        """
        return await execute(self.tools, ToolExecutionRequest(name, arguments or {}), context or InvocationContext())

    async def refresh(self) -> None:
        """Have every server's tools listed again."""
        await _all_at_once(upstream.refresh for upstream in self._upstreams.values())

    @property
    def origins(self) -> Mapping[str, RemoteName]:
        """For each name here, the server that the tool lives on and the name that it has there."""
        return self._catalogue.origins

    # --- servers -----------------------------------------------------------------------------------------------------

    @property
    def connections(self) -> Mapping[str, Connection]:
        """Each server's connection, by the server's name: the one that lists, and that calls without an identity."""
        return {name: upstream.connection for name, upstream in self._upstreams.items()}

    async def add(self, servers: Servers, *, wait: bool = True) -> None:
        """Add servers, and open them where the provider is open.

        Args:
            servers: As for the constructor.
            wait: As for `open`.

        Raises:
            DefinitionError: There is a server of that name; none was added.
            ServerError: A required one cannot be reached or listed; none was added.
        """
        await self._start_added([self._adopt(server) for server in servers_from(servers)], wait=wait)

    async def _start_added(self, added: list[Upstream], *, wait: bool) -> None:
        if self._is_open:
            try:
                await self._start(added, wait=wait)
            except ServerError:
                for upstream in added:
                    del self._upstreams[upstream.name]
                self._rebuild()
                raise

    async def remove(self, *names: str) -> None:
        """Remove servers with their tools, and close them; calls that are under way end.

        Raises:
            DefinitionError: There is no such server; none was removed.
        """
        for name in names:
            if name not in self._upstreams:
                raise DefinitionError(
                    f"there is no server {name!r} here: {', '.join(self._upstreams) or 'none at all'}"
                )
        gone = [self._upstreams.pop(name) for name in names]
        self._rebuild()
        await _all_at_once(upstream.aclose for upstream in gone)

    async def reconfigure(self, servers: Servers, *, wait: bool = True) -> None:
        """Let exactly these servers be here. Only those that changed are closed and opened.

        Args:
            servers: As for the constructor.
            wait: As for `open`.

        Raises:
            ServerError: As for `add`; those that are gone are gone.
        """
        wanted = {server.name: server for server in servers_from(servers)}
        kept = {name for name, upstream in self._upstreams.items() if _is_same(upstream, wanted.get(name))}
        gone = [self._upstreams.pop(name) for name in [*self._upstreams] if name not in kept]
        added = [self._adopt(server) for name, server in wanted.items() if name not in kept]
        self._upstreams = {name: self._upstreams[name] for name in wanted}
        self._rebuild()  # once: between the old servers and the new ones the tools that stay keep their names
        await _all_at_once(upstream.aclose for upstream in gone)
        await self._start_added(added, wait=wait)

    def status(self) -> tuple[ServerStatus, ...]:
        """How each server is now."""
        return tuple(
            ServerStatus(
                connection=upstream.connection.status(),
                required=upstream.config.required,
                is_listed=upstream.is_listed,
                tools=self._catalogue.of_server(upstream.name),
                problem=upstream.problem,
                skipped=(*upstream.skipped, *self._catalogue.left_out.get(upstream.name, ())),
            )
            for upstream in self._upstreams.values()
        )

    # --- news --------------------------------------------------------------------------------------------------------

    def on_change(self, listener: Callable[[ToolsChange], None]) -> Callable[[], None]:
        """Have each change of the tools told; returns what ends that. What the listener raises is logged."""
        return self._change_listeners.add(listener)

    def on_state(self, listener: Callable[[str, ConnectionState], None]) -> Callable[[], None]:
        """Have each new state of a server told, by its name; returns what ends that. What it raises is logged."""
        return self._state_listeners.add(listener)

    # --- underneath --------------------------------------------------------------------------------------------------

    def _adopt(self, server: ServerConfig | Connection) -> Upstream:
        connection = server if isinstance(server, Connection) else self._connect(server)
        if connection.name in self._upstreams:
            raise DefinitionError(f"there are two servers named {connection.name!r}: rename one")
        upstream = Upstream(
            connection,
            connect=self._connect,
            healing=self._healing,
            headers_supplier=self._headers_supplier,
            meta_supplier=self._meta_supplier,
            validates_results=self._validates_results,
            changed=self._tools_changed,
            state_changed=partial(self._state_listeners.tell, connection.name),
        )
        self._upstreams[upstream.name] = upstream
        return upstream

    def _connect(self, config: ServerConfig) -> Connection:
        auth = self._auth(config) if self._auth is not None else None
        return Connection(config, handlers=self._handlers, healing=self._healing, auth=auth)

    async def _start(self, upstreams: list[Upstream], *, wait: bool) -> None:
        self._is_holding = wait  # to name all tools once, and not after each server
        try:
            await _all_at_once(upstream.start for upstream in upstreams)
            if wait:
                await _all_at_once(partial(_settled, upstream) for upstream in upstreams)
            self._rebuild()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await _all_at_once(upstream.aclose for upstream in upstreams)
            if isinstance(error, ExceptionGroup):
                leaf = _leaf(error)
                raise leaf from leaf.__cause__
            raise
        finally:
            self._is_holding = False

    def _tools_changed(self) -> None:
        if self._is_holding:
            return
        try:
            self._rebuild()
        except Exception:
            _logger.exception("the tools cannot be named, and stay as they were")

    def _rebuild(self) -> None:
        before = self._catalogue
        beside = self.resources.tools() if self._offers_resources else ()
        listed = ((upstream.config, upstream.tools) for upstream in self._upstreams.values())
        self._catalogue = self._cataloguing.catalogue(listed, beside, {tool.name for tool in self._local})
        for server, reasons in self._catalogue.left_out.items():
            if reasons != before.left_out.get(server):
                _logger.warning("server %r: left out: %s", server, "; ".join(reasons))
        self.tools.replace(self._catalogue.tools)
        if self._change_listeners and (change := self._catalogue.change_from(before)):
            self._change_listeners.tell(change)


async def _all_at_once(functions: Iterable[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    async with anyio.create_task_group() as tasks:
        for function in functions:
            tasks.start_soon(function)


async def _settled(upstream: Upstream) -> None:
    """Wait until a server is listed, or cannot be now.

    Raises:
        ServerError: It cannot be, and is required.
    """
    await upstream.settled()
    if upstream.is_listed or upstream.problem is None:
        return
    if upstream.config.required:
        raise upstream.problem
    _logger.warning("going on without the server %r until it is there: %s", upstream.name, upstream.problem)


def _is_same(upstream: Upstream, server: ServerConfig | Connection | None) -> bool:
    return server is not None and (upstream.connection is server or upstream.config == server)


def _leaf(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error

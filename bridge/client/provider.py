"""McpToolProvider: the tools, resources and prompts of remote MCP servers as local ones.

Each server is an Upstream (`bridge.client.upstream`), which lists and calls by a Connection that reconnects.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio

from bridge.client.caller_processes import CallerProcesses
from bridge.client.callers import CallerConnections
from bridge.client.connection.connection import Connection
from bridge.client.connection.handlers import ClientHandlers  # noqa: TC001 - of checked arguments
from bridge.client.connection.processes import Processes
from bridge.client.connection.status import ConnectionState, Listeners, ReconnectPolicy
from bridge.client.connection_pool import MAX_REFRESH_SECONDS, HeaderSupplier, all_at_once, require_unique, servers_from
from bridge.client.events import RemoteEvents
from bridge.client.http_credentials import credentials_for, require_headers_taken
from bridge.client.listed_items import require_server
from bridge.client.prompts import RemotePrompts
from bridge.client.replacement import ReplacedServers, open_new
from bridge.client.resources import RemoteResources
from bridge.client.skills import RemoteSkills
from bridge.client.tasks.starting import TaskStarter
from bridge.client.tool_catalog import EMPTY, CatalogRules, ToolsChange, checked_features
from bridge.client.upstream import Upstream
from bridge.tools.annotated_checks import checked
from bridge.tools.middleware import checked_middleware
from bridge.tools.toolbox import ToolBox
from bridge.tools.transform import wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import httpx2

    from bridge.client.callers import CallerAuths
    from bridge.client.config.servers import Prefixing, ServerConfig
    from bridge.client.connection.processes import ProcessOptions
    from bridge.client.connection_pool import Servers
    from bridge.client.tool_catalog import NameMapper, RemoteName, ServerStatus, ToolCatalog, ToolFilter
    from bridge.prompts.prompt import Prompt
    from bridge.tools.middleware import Middleware
    from bridge.tools.tool import Tool, ToolProviderRequest
    from bridge.types import Feature

_logger = logging.getLogger("bridge.client")


class McpToolProvider(TaskStarter):
    """Tools of MCP servers (LangChain4j's McpToolProvider). It belongs to the event loop that opens it.

    Args:
        servers: A configuration, servers, connections, a URL, or the path of an ``mcp.json`` (``mcp.json#name`` selects
            one of its servers) or of a Python file with tools. A connection that is already open is not closed.
        handlers: Handlers for server requests (sampling, elicitation), except of connections that are passed in.
        filter: Selects tools among those that the configuration allows; None for all.
        name_mapper: Returns a tool's local name; None for its own name after the configured prefix.
        prefix: When the server's name is prepended to tool names: ``always``, ``on_collision`` (only if another tool
            has the same name) or ``never`` (the tool is left out instead). None uses the configuration; without a value
            there, ``always`` with several servers and ``on_collision`` with one.
        local: Local tools that are used together with these; no remote tool gets the name of one.
        headers_supplier: Returns the HTTP headers of a call; they override configured headers. Each distinct set of
            headers gets its own connection. Tools are listed with the headers for an empty context.
        meta_supplier: Returns the ``_meta`` of a call; it overrides what the caller passed.
        auth: Returns the authentication of a server's HTTP requests; None uses the configuration.
        caller_auths: Returns the credentials of the callers of a server; None if all have the same.
        reconnect: Reconnection delays.
        processes: Options of servers that are child processes; None for the defaults.
        resources: Add two tools by which a model lists and reads the servers' resources.
        features: Features besides tools to list when servers are opened; others are listed when they are first used.
        validates_results: Validate structured content against output schemas.
        middleware: Middleware around calls, reads, prompts and completions, the outermost first; lists have ``filter``.
    """

    is_dynamic = True  # the tools may change between two calls of a model

    @checked()
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
        caller_auths: Callable[[ServerConfig], CallerAuths | None] | None = None,
        reconnect: ReconnectPolicy | None = None,
        processes: ProcessOptions | None = None,
        resources: bool = False,
        features: Collection[Feature] = (),
        validates_results: bool = True,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self._middleware = checked_middleware(middleware)
        self.tools = ToolBox()
        """Current tools by local name; updated when a server's tools change, with notification of listeners."""
        self.resources = RemoteResources(self, self._middleware)
        """Resources by local URI; filled when they are first asked for, and then updated."""
        self.prompts = RemotePrompts(self, self._middleware)
        """Prompts by local name; filled when they are first asked for, and then updated."""
        self.skills = RemoteSkills(self, self.resources.uris)
        """Skills by local URI."""
        self.events = RemoteEvents(self, lambda listed, taken: self._catalog_rules.prompt_names(listed, [*taken]))
        """Events by local name."""
        self._handlers = handlers
        self._reconnect = reconnect or ReconnectPolicy()
        self._processes = Processes(processes)
        self._auth, self._caller_auths = auth, caller_auths
        self._catalog_rules = CatalogRules(filter=filter, name_mapper=name_mapper, prefix=prefix)
        self._headers_supplier, self._meta_supplier = headers_supplier, meta_supplier
        self._offers_resources, self._validates_results = resources, validates_results
        self._catalog: ToolCatalog = EMPTY
        self._left_out: dict[Feature, Mapping[str, tuple[str, ...]]] = {}
        self._upstreams: dict[str, Upstream] = {}
        self._replaced = ReplacedServers()
        self._followed: set[Feature] = {"tools", *checked_features(features)}
        self._local = ToolBox() if local is None else local
        self._local.on_change(partial(self._rebuild, "tools"))
        self._is_open = self._defers_naming = False
        self._change_listeners, self._state_listeners = Listeners[[ToolsChange]](), Listeners[[str, ConnectionState]]()
        require_headers_taken(given := servers_from(servers), headers_supplier)
        self._adopt(given)

    async def open(self, *, wait: bool = True) -> None:
        """Open all servers concurrently.

        Args:
            wait: Return when each server's tools are listed or have failed to list. Otherwise return immediately; tools
                appear when they are listed.

        Raises:
            ServerError: A required server cannot be reached, or its tools cannot be listed; all connections are closed
                again.
        """
        self._is_open = True
        await self._start(list(self._upstreams.values()), wait=wait)

    async def settled(self, *names: str) -> None:
        """Wait until the tools of servers, by default of all, are listed for the first time, or have failed to list.

        Raises:
            DefinitionError: The provider is not open.
        """
        self.require_open()
        await all_at_once(each.settled for name, each in self._upstreams.items() if not names or name in names)

    def owners_of(self, name: str) -> frozenset[str]:
        """Return the servers for which a tool's local name is reserved by its prefix; empty if it is for none."""
        return self._catalog_rules.owners_of(name, [upstream.config for upstream in self._upstreams.values()])

    async def aclose(self) -> None:
        """Close all connections. Tools stay listed, but calls fail. May be called from any task."""
        self._is_open = False
        await all_at_once([self._replaced.aclose, *(upstream.aclose for upstream in self._upstreams.values())])

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):  # each connection bounds its own shutdown
            await self.aclose()

    async def provide_tools(self, request: ToolProviderRequest) -> Iterable[Tool]:  # noqa: ARG002 - the protocol's
        """Return the current tools; lists that have expired are fetched again first, for five seconds at most.

        Raises:
            DefinitionError: The provider has never been opened.
        """
        if not self.tools:
            self.require_open()
        lists = [upstream.lists["tools"] for upstream in self._upstreams.values()]
        with anyio.move_on_after(MAX_REFRESH_SECONDS):  # a server that hangs delays no other
            await all_at_once(each.refresh for each in lists if each.has_expired)
        return tuple(self.tools)

    def set_filter(self, filter: ToolFilter | None) -> None:  # noqa: A002 - LangChain4j's word
        """Use another filter, as for the constructor; listeners are notified of the tools that it adds and removes."""
        before, self._catalog_rules = self._catalog_rules, replace(self._catalog_rules, filter=filter)
        try:
            self._rebuild("tools")
        except BaseException:
            self._catalog_rules = before
            raise

    async def refresh(self) -> None:
        """List the tools of every server again, and its resources and prompts if they are used.

        Raises:
            DefinitionError: The provider is not open.
        """
        self.require_open()
        await all_at_once(upstream.refresh for upstream in self._upstreams.values())

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """The servers by name."""
        return self._upstreams

    async def follow(self, feature: Feature, *servers: str) -> None:
        """List a feature of all servers from now on, and wait until it is listed, or has failed to list.

        Args:
            feature: ``resources`` or ``prompts``; tools are always listed.
            servers: Names of the servers to wait for; all by default.

        Raises:
            DefinitionError: There is no such server, or the provider has not listed the feature and is not open.
        """
        for name in servers:
            require_server(self._upstreams, name)
        if not any(upstream.lists[feature].is_listed for upstream in self._upstreams.values()):
            self.require_open()
        self._followed.add(feature)
        for upstream in self._upstreams.values():
            upstream.follow(feature)
        chosen = [self._upstreams[name] for name in servers or self._upstreams]
        lists = [upstream.lists[feature] for upstream in chosen if upstream.is_open]
        await all_at_once(each.refresh if each.has_expired else each.settled for each in lists)

    @property
    def origins(self) -> Mapping[str, RemoteName]:
        """Server and remote name of each tool, by local name."""
        return self._catalog.origins

    @property
    def connections(self) -> Mapping[str, Connection]:
        """Each server's main connection, by server name: it lists tools and serves calls without an identity."""
        return {name: upstream.connection for name, upstream in self._upstreams.items()}

    async def add(self, servers: Servers, *, wait: bool = True) -> None:
        """Add servers, given as for the constructor, and open them if the provider is open; ``wait`` as for `open`.

        Raises:
            DefinitionError: A server of that name exists, or a name of a tool is invalid; none was added.
            ServerError: A required server cannot be reached or listed; none was added.
        """
        added = self._adopt(servers_from(servers))
        if self._is_open:
            try:
                await self._start(added, wait=wait)
            except BaseException:
                for upstream in added:
                    del self._upstreams[upstream.name]
                self._rebuild()
                raise

    async def remove(self, *names: str) -> None:
        """Remove servers and their tools, and close their connections; running calls fail.

        Raises:
            DefinitionError: There is no such server; none was removed.
        """
        for name in names:
            require_server(self._upstreams, name)
        removed = [self._upstreams.pop(name) for name in names]
        self._rebuild()
        await all_at_once(upstream.aclose for upstream in removed)

    async def reconfigure(self, servers: Servers, *, wait: bool = True, wait_seconds: float = math.inf) -> None:
        """Replace the set of servers, as a whole or not at all; only servers that changed are opened again.

        New ones are opened first. Calls that run on old ones go on; their connections are closed after the last call.

        Args:
            servers: As for the constructor.
            wait: Wait until new servers are listed or have failed to list; otherwise only for required ones.
            wait_seconds: Maximum seconds to wait for servers that are not required.

        Raises:
            DefinitionError: Two servers have the same name; nothing was changed.
            ServerError: As for `add`; nothing was changed.
        """
        wanted, before = require_unique(servers_from(servers)), self._upstreams
        kept = {name: now for name, now in before.items() if wanted.get(name) in (now.connection, now.config)}
        added = {name: self._upstream(server) for name, server in wanted.items() if name not in kept}
        after = {name: kept.get(name) or added[name] for name in wanted}
        opened = added.values() if self._is_open else ()
        await open_new(opened, lambda: self._use(after), wait_seconds=wait_seconds if wait else 0)
        for upstream in (each for name, each in before.items() if name not in kept):
            self._replaced.add(upstream)
        for upstream in added.values():
            upstream.follow(*self._followed)

    def _use(self, upstreams: dict[str, Upstream]) -> None:
        before, self._upstreams = self._upstreams, upstreams
        try:
            self._rebuild()  # once, so that the remaining tools keep their names
        except BaseException:
            self._upstreams = before
            self._rebuild()
            raise

    def status(self) -> tuple[ServerStatus, ...]:
        """Current status of each server."""
        return tuple(
            upstream.status(
                tuple(tool for tool, origin in self.origins.items() if origin.server == name),
                (reason for left_out in self._left_out.values() for reason in left_out.get(name, ())),
            )
            for name, upstream in self._upstreams.items()
        )

    def on_change(self, listener: Callable[[ToolsChange], None]) -> Callable[[], None]:
        """Call a listener on each change of the tools; returns a function that removes it. Exceptions are logged."""
        return self._change_listeners.add(listener)

    def on_state(self, listener: Callable[[str, ConnectionState], None]) -> Callable[[], None]:
        """Call a listener with each server's new state; returns a function that removes it. Exceptions are logged."""
        return self._state_listeners.add(listener)

    def _adopt(self, servers: Sequence[ServerConfig | Connection]) -> list[Upstream]:
        require_unique([*self._upstreams.values(), *servers])
        added = [self._upstream(server) for server in servers]
        self._upstreams |= {upstream.name: upstream for upstream in added}
        return added

    def _upstream(self, server: ServerConfig | Connection) -> Upstream:
        connection = server if isinstance(server, Connection) else self._connect(server)
        upstream = Upstream(
            connection,
            connect=self._connect,
            callers=self._callers(connection.config),
            reconnect=self._reconnect,
            headers_supplier=self._headers_supplier,
            meta_supplier=self._meta_supplier,
            validates_results=self._validates_results,
            uris=self.resources.uris,
            changed=self._list_changed,
            updated=partial(self.resources.notify, connection.name),
            watched=partial(self.resources.watched, connection.name),
            state_changed=partial(self._state_listeners.notify, connection.name),
        )
        upstream.follow(*self._followed)
        return upstream

    def _callers(self, config: ServerConfig) -> CallerConnections | None:
        auths: CallerAuths | None = CallerProcesses()
        if config.process_per is None:
            auths = credentials_for(config, self._caller_auths, "caller_auths")
        return None if auths is None else CallerConnections(config, self._connect, auths)

    def _connect(self, config: ServerConfig, auth: httpx2.Auth | None = None) -> Connection:
        own = credentials_for(config, self._auth, "auth") if auth is None else auth
        return Connection(config, self._processes, handlers=self._handlers, reconnect=self._reconnect, auth=own)

    async def _start(self, upstreams: list[Upstream], *, wait: bool) -> None:
        self._defers_naming = wait  # to assign names once, not after each server
        try:
            await open_new(upstreams, self._rebuild, wait_seconds=math.inf if wait else None)
        finally:
            self._defers_naming = False

    def _list_changed(self, feature: Feature) -> None:
        if self._defers_naming:
            return
        try:
            self._rebuild(feature, *(("tools",) if feature == "resources" else ()))  # the apps of tools are resources
        except Exception:
            _logger.exception("the %s cannot be named; the previous ones stay in use", feature)

    def _rebuild(self, *features: Feature) -> None:
        """Name the items of some features, by default all, anew."""
        rebuild: dict[Feature, Callable[[CatalogRules], Mapping[str, tuple[str, ...]]]]
        rebuild = {"resources": self.resources.rebuild, "prompts": self.prompts.rebuild, "tools": self._rebuild_tools}
        for feature in features or rebuild:
            before, left_out = self._left_out.get(feature, {}), rebuild[feature](self._catalog_rules)
            for server, reasons in left_out.items():
                if reasons != before.get(server, ()):
                    _logger.warning("server %r: left out: %s", server, "; ".join(reasons))
            self._left_out[feature] = left_out

    def catalog_with(self, tools: Mapping[str, Iterable[Tool]]) -> ToolCatalog:
        """Name the tools of all servers, with other tools of some of them, by server."""
        listed = ((upstream.config, tools.get(name, upstream.tools)) for name, upstream in self._upstreams.items())
        return self._catalog_rules.build(listed, (), {tool.name for tool in self._local})

    def prompts_with(self, prompts: Mapping[str, Iterable[Prompt]]) -> tuple[Prompt, ...]:
        """Return other prompts of some servers, by server, with local names."""
        return self.prompts.named_with(self._catalog_rules, prompts)

    def _rebuild_tools(self, rules: CatalogRules) -> Mapping[str, tuple[str, ...]]:
        beside = self.resources.tools() if self._offers_resources else ()
        listed = ((upstream.config, upstream.tools) for upstream in self._upstreams.values())
        before, self._catalog = self._catalog, rules.build(listed, beside, {tool.name for tool in self._local})
        self.tools.replace(wrapped(map(self.resources.localized, self._catalog.tools), *self._middleware))
        if self._change_listeners and (change := self._catalog.change_from(before)):
            self._change_listeners.notify(change)
        return self._catalog.left_out

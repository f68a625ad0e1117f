"""Upstream: one server of a provider, with its connections, and its lists of tools, resources and prompts."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel

from bridge.client.connection.list_methods import PROMPTS, RESOURCES, TEMPLATES, TOOLS
from bridge.client.connection.running_call import NO_OPTIONS, CallOptions
from bridge.client.connection.status import ConnectionState
from bridge.client.connection_pool import ConnectionPool, all_at_once, supplied, with_headers
from bridge.client.listed_items import ListedItems
from bridge.client.remote_list import Fetched, RemoteList
from bridge.client.selection import ResourceSelection, not_as_pinned
from bridge.client.tool_catalog import ServerStatus
from bridge.errors import ServerAuthError
from bridge.tools.context import InvocationContext
from bridge.types import FEATURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping

    from bridge.client.callers import CallerConnections, CallerListing
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.list_methods import Listed
    from bridge.client.connection.status import Era, ReconnectPolicy
    from bridge.client.connection_pool import HeaderSupplier
    from bridge.client.uris import UriNames
    from bridge.errors import ServerError
    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.tool import Tool
    from bridge.types import Feature, Json

T = TypeVar("T")

_logger = logging.getLogger("bridge.client")


class Upstream:
    """One server of a provider; the arguments are those of `McpToolProvider`.

    Args:
        connection: The main connection: it lists tools, and serves calls when no supplier returns headers.
        connect: Creates a connection for an identity.
        callers: Connections of callers with credentials of their own; None for none.
        uris: The local URIs of resources.
        changed: Called with the feature whose list has changed.
        updated: Called with the URI of a watched resource that has, or may have, new content.
        watched: Returns the URIs on the server of the resources that are watched when it is started.
        state_changed: Called with each new state of the connection.

    Attributes:
        tools: The tools of the last list, by remote name.
        resources: The resources and templates of the last list, by their URIs on the server.
        prompts: The prompts of the last list, by remote name.
        refused_prompts: Reasons of the prompts refused by pins, by remote name.
        lists: The lists by feature; only those that were started are up to date.
        on_close: Called before the connections are closed.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connect: Callable[[ServerConfig], Connection],
        callers: CallerConnections | None,
        reconnect: ReconnectPolicy,
        headers_supplier: HeaderSupplier | None,
        meta_supplier: HeaderSupplier | None,
        validates_results: bool,
        uris: UriNames,
        changed: Callable[[Feature], None],
        updated: Callable[[str], None],
        watched: Callable[[], Iterable[str]],
        state_changed: Callable[[ConnectionState], None],
    ) -> None:
        self.connection = connection
        self.config, self.name = connection.config, connection.name
        self.tools: tuple[Tool, ...] = ()
        self.resources: tuple[Resource | ResourceTemplate, ...] = ()
        self.prompts: tuple[Prompt, ...] = ()
        self.refused_prompts: Mapping[str, str] = {}
        self.on_close: set[Callable[[], None]] = set()
        self._headers_supplier = headers_supplier if connection.config.transport.takes_headers else None
        self._meta_supplier = meta_supplier
        self._items = ListedItems(self, self.config, uris, validates_results=validates_results)
        self._updated, self._watched, self._state_changed = updated, watched, state_changed
        self._connect, self.callers = connect, callers
        self._pool = ConnectionPool(connection.config, connect)
        self._owns, self.is_open = connection.state is ConnectionState.CLOSED, False
        self._listing_headers: Mapping[str, Any] | None = None
        self._skipped: dict[Feature, tuple[str, ...]] = {}
        self._fetched: dict[Feature, object] = {}
        self._selection = ResourceSelection(self.config)
        self._stop_listening: tuple[Callable[[], None], ...] = ()
        fetchers = {"tools": self._fetch_tools, "resources": self._fetch_resources, "prompts": self._fetch_prompts}
        self.lists: dict[Feature, RemoteList] = {
            feature: RemoteList(
                feature,
                reconnect=reconnect,
                fetch=partial(self._fetch, fetchers[feature]),
                changed=partial(changed, feature),
                idle=self._drop_idle,
                idle_seconds=self.config.idle_seconds,
            )
            for feature in FEATURES
        }
        self._followed: set[Feature] = {"tools"}

    async def start(self) -> None:
        """Start connecting and listing; see `settled`."""
        for each in self._followed:
            self.lists[each].prepare()
        self._pool = ConnectionPool(self.config, self._connect)
        try:
            if self._headers_supplier is not None and self._owns:
                try:
                    headers = await supplied(self._headers_supplier, self.name, InvocationContext())
                except Exception as error:  # noqa: BLE001 - a supplier may support only calls with a context
                    _logger.info("the server %r is listed with the configured headers: %r", self.name, error)
                    headers = {}
                self._listing_headers = headers
                self.connection = self._connect(with_headers(self.config, headers))
            self._stop_listening = (
                self.connection.on_updated(self._updated),
                self.connection.on_state(self._state_changed),
            )
            for uri in self._watched():
                self.connection.watch_again(uri)
            await self.connection.open(wait=False)
        except BaseException:
            for each in self._followed:
                self.lists[each].release()  # no task will list
            raise
        self.is_open = True
        for each in self._followed:
            self.lists[each].start(self.connection)

    def follow(self, *features: Feature) -> None:
        """List features, and keep the lists up to date, while the server is open."""
        for feature in features:
            if feature not in self._followed:
                self._followed.add(feature)
                self.lists[feature].prepare()
                if self.is_open:
                    self.lists[feature].start(self.connection)

    async def settled(self) -> None:
        """Wait until everything that is followed is listed for the first time, or has failed to list."""
        for each in tuple(self._followed):
            await self.lists[each].settled()

    async def require_settled(self) -> None:
        """Wait like `settled`; an optional server that cannot be listed is logged.

        Raises:
            ServerError: The server is required, and its tools cannot be listed.
        """
        await self.settled()
        if self.is_listed or self.problem is None:
            return
        if self.config.required:
            raise self.problem
        _logger.warning("the server %r is unavailable and is used when it can be reached: %s", self.name, self.problem)

    async def refresh(self) -> None:
        """List everything that is followed again, and wait until that has succeeded or failed."""
        await all_at_once(self.lists[each].refresh for each in self._followed)

    async def aclose(self) -> None:
        """Close all connections, except a connection that was open before."""
        self.is_open = False
        for close in tuple(self.on_close):
            close()
        self.mute()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pool.aclose)
            if self.callers is not None:
                tasks.start_soon(self.callers.aclose)
            if self._owns:
                await self.connection.aclose()
        await all_at_once(each.aclose for each in self.lists.values())

    def mute(self) -> None:
        """Pass on no more changes of lists, resources and states."""
        for stop in (*(each.cancel for each in self.lists.values()), *self._stop_listening):
            stop()
        self._stop_listening = ()

    def _drop_idle(self) -> None:
        self._pool.drop_idle()
        if self.callers is not None:
            self.callers.drop_idle()

    @property
    def is_busy(self) -> bool:
        """True while calls run or wait."""
        return self.connection.is_busy or self._pool.is_busy or (self.callers is not None and self.callers.is_busy)

    @property
    def era(self) -> Era | None:
        """Era of the server; None before the first handshake."""
        return self.connection.era or (None if self.callers is None else self.callers.era)

    @property
    def is_listed(self) -> bool:
        """True after the tools were listed at least once."""
        return self.lists["tools"].is_listed or self.lists_per_caller

    @property
    def problem(self) -> ServerError | None:
        """The error of the last list of tools, or of another; None after a success."""
        if self.lists_per_caller:
            return None
        return next((each.problem for each in self.lists.values() if each.problem is not None), None)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Listed items that are malformed or refused by pins, each with the reason."""
        return tuple(reason for feature in FEATURES for reason in self._skipped.get(feature, ()))

    def status(self, tools: tuple[str, ...], left_out: Iterable[str]) -> ServerStatus:
        """Current status, given local names of its tools, and items that got no local name, each with the reason."""
        return ServerStatus(
            connection=self.connection.status(),
            required=self.config.required,
            is_listed=self.is_listed,
            tools=tools,
            problem=self.problem,
            caller_connections=0 if self.callers is None else len(self.callers),
            skipped=(*self.skipped, *left_out),
        )

    @property
    def completes(self) -> bool:
        """True if the server has completions, or may have them."""
        return (info := self.connection.server_info) is None or "completions" in info.capabilities

    def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, context: InvocationContext, options: CallOptions
    ) -> Coroutine[Any, Any, Json]:
        """Call a tool with the context's identity; see `bridge.client.connection.connection.Connection.call_tool`."""
        if self._headers_supplier is None and self._meta_supplier is None and self.callers is None:
            if context.meta:
                options = replace(options, meta=context.meta)
            return self.connection.call_tool(name, arguments, context=context, options=options)
        return self._call_supplied(name, arguments, context, options)

    async def _call_supplied(
        self, name: str, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions
    ) -> Json:
        if meta := context.meta if self._meta_supplier is None else await self.meta_for(context):
            options = replace(options, meta=meta)
        lease = None if self.callers is None else self.callers.lease(context.caller, context.headers)
        if lease is None:
            async with self.connection_for(context) as connection:
                return await connection.call_tool(name, arguments, context=context, options=options)
        try:  # most calls, without the contexts
            return await lease.connection.call_tool(name, arguments, context=context, options=options)
        except ServerAuthError as error:
            raise await lease.refused(error) from error
        finally:
            lease.leave()

    async def task_result(self, task_id: str, *, context: InvocationContext) -> Json:
        """Wait for the end of a task with the context's identity; see `Connection.task_result`."""
        options = CallOptions(meta=await self.meta_for(context))
        async with self.connection_for(context) as connection:
            return await connection.task_result(task_id, context=context, options=options)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        context: InvocationContext,
        options: CallOptions = NO_OPTIONS,
    ) -> Json:
        """Send another request with the context's identity; see `Connection.request`."""
        if meta := await self.meta_for(context):
            options = replace(options, meta=meta)
        async with self.connection_for(context) as connection:
            return await connection.request(method, params, context=context, options=options)

    async def meta_for(self, context: InvocationContext) -> Mapping[str, Any] | None:
        """Merge the caller's ``_meta`` with the supplier's, which takes precedence."""
        if self._meta_supplier is None:
            return context.meta or None
        return {**context.meta, **await supplied(self._meta_supplier, self.name, context)}

    @asynccontextmanager
    async def connection_for(self, context: InvocationContext) -> AsyncIterator[Connection]:
        """Borrow the connection that sends the headers, or has the credential, of a call."""
        if self.callers is not None:
            async with self.callers.connection(context.caller, context.headers) as own:
                yield self.connection if own is None else own
            return
        headers = self._listing_headers
        if self._headers_supplier is not None:
            headers = await supplied(self._headers_supplier, self.name, context)
        if headers == self._listing_headers:
            yield self.connection
        else:
            async with self._pool.connection(headers or {}) as connection:
                yield connection

    async def require_usable(self, feature: Feature, key: str) -> None:
        """Check that a resource, by its URI on the server, or a prompt, by its name there, may be used.

        Resources are listed for it, if they can be left out.

        Raises:
            PinMismatchError: It differs from its pin.
            ResourceNotFoundError: The configuration leaves the resource out.
            ServerError: The resources cannot be listed, so that they cannot be compared with their pins.
        """
        if feature == "prompts":
            if (reason := self.refused_prompts.get(key)) is not None:
                raise not_as_pinned(self.name, f"rendering {key!r}", reason)
        elif self._selection.is_needed:
            listing = self.lists["resources"]
            self.follow("resources")
            if self.is_open:
                await (listing.refresh() if listing.has_expired else listing.settled())
            if listing.problem is not None and not listing.is_listed:
                raise listing.problem
            self._selection.require(key)

    @property
    def lists_per_caller(self) -> bool:
        """True if each caller has lists of its own: by the configuration, or as the server has none for the gateway."""
        if self.callers is None or self._lists_nothing_for_all:
            return self.callers is not None
        listing = self.lists["tools"]
        return not listing.is_listed and isinstance(listing.problem, ServerAuthError)

    @property
    def _lists_nothing_for_all(self) -> bool:
        """True if the configuration says that each caller has lists of its own."""
        return self.config.list_per == "caller" and self.callers is not None

    async def list_for(self, context: InvocationContext, changed: Callable[[Feature], None]) -> CallerListing:
        """List everything for a caller; see `bridge.client.callers.CallerConnections.list_features`."""
        assert self.callers is not None, "it lists per caller"
        async with self.connection_for(context) as connection:
            return await self.callers.list_features(connection, self._items, changed)

    async def watch_for(
        self, context: InvocationContext, uri: str, listener: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Watch a resource for a caller; see `bridge.client.callers.CallerConnections.watch`."""
        assert self.callers is not None, "each caller has a connection"
        return await self.callers.watch(context.caller, context.headers, uri, listener)

    async def _fetch(self, fetch: Callable[[], Awaitable[Fetched]]) -> Fetched:
        return Fetched(False, None) if self._lists_nothing_for_all else await fetch()

    async def _fetch_tools(self) -> Fetched:
        listed = await self.connection.list_items(TOOLS)

        async def keep() -> None:
            tools, self._skipped["tools"] = await self._items.tools(listed)
            self.tools = tuple(tools)

        return await self._kept("tools", keep, listed)

    async def _fetch_resources(self) -> Fetched:
        listed, templates = await self.connection.list_items(RESOURCES), await self.connection.list_items(TEMPLATES)

        async def keep() -> None:
            items, self._skipped["resources"] = await self._items.resources(listed, templates)
            self.resources = self._selection.update(items, listed.refused, templates.refused)

        return await self._kept("resources", keep, listed, templates)

    async def _fetch_prompts(self) -> Fetched:
        listed = await self.connection.list_items(PROMPTS)

        async def keep() -> None:
            self.prompts, self._skipped["prompts"] = await self._items.prompts(listed)
            self.refused_prompts = {n: reason for n, reason in listed.refused.items() if self.config.admits_prompt(n)}

        return await self._kept("prompts", keep, listed)

    async def _kept(self, feature: Feature, keep: Callable[[], Awaitable[None]], *lists: Listed) -> Fetched:
        """Keep the items of lists, unless they are as before."""
        ttls = [each.ttl_seconds for each in lists if each.ttl_seconds is not None]
        fetched = tuple(each._replace(ttl_seconds=None) for each in lists)
        has_changed = fetched != self._fetched.get(feature)
        if has_changed:
            await keep()
            self._fetched[feature] = fetched
        return Fetched(has_changed, min(ttls, default=None))

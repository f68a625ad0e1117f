"""Upstream: one server of a provider, with its connections and its last tool list.

    settle ──> list ──> wait for a change, a reconnection, or expiry of the list ──> list …
                 ╰──── failed ────> back off ─────────────────────────────────┘

One task lists tools; other tasks request a new list from it. Tools stay listed while the server is unavailable.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.lowlevel

from bridge.client.connection.state import ConnectionState, ToolListing
from bridge.client.connection_pool import MAX_IDLE_SECONDS, ConnectionPool, with_headers
from bridge.client.remote_tool import remote_tool
from bridge.errors import DefinitionError, ServerError, ServerRefusedError, WireError
from bridge.portal import start_detached
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.call import CallOptions
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.state import ReconnectPolicy
    from bridge.tools.tool import Tool
    from bridge.types import Json

HeaderSupplier: TypeAlias = Callable[[str, InvocationContext], "Mapping[str, Any] | Awaitable[Mapping[str, Any]]"]
"""Returns headers or ``_meta`` of a call; called with the server's name and the invocation context."""

MIN_EXPIRY_SECONDS = 30.0
"""Minimum seconds between two lists caused by expiry, even if the server's TTL is shorter."""

_METHOD_NOT_FOUND = -32601
_TOOLS_AT_ONCE = 50
"""Tools that are created before control returns to the event loop."""
_logger = logging.getLogger("bridge.client")


class Upstream:
    """One server of a provider; the arguments are those of `McpToolProvider`.

    Args:
        connection: The main connection: it lists tools, and serves calls when no supplier returns headers.
        connect: Creates a connection for an identity.
        changed: Called when the tools have changed.
        state_changed: Called with each new state of the connection.

    Attributes:
        tools: The tools of the last list, by remote name.
        problem: The error of the last list; None after a success.
        skipped: Listed tools that are malformed or refused by pins, each with the reason.
        is_listed: True after the tools were listed at least once.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        connect: Callable[[ServerConfig], Connection],
        reconnect: ReconnectPolicy,
        headers_supplier: HeaderSupplier | None,
        meta_supplier: HeaderSupplier | None,
        validates_results: bool,
        changed: Callable[[], None],
        state_changed: Callable[[ConnectionState], None],
    ) -> None:
        self.connection = connection
        self.config = connection.config
        self.name = connection.name
        self.tools: tuple[Tool, ...] = ()
        self.problem: ServerError | None = None
        self.skipped: tuple[str, ...] = ()
        self.is_listed = False
        self._headers_supplier = headers_supplier if connection.config.transport.takes_headers else None
        self._meta_supplier = meta_supplier
        self._validates_results = validates_results
        self._changed = changed
        self._state_changed = state_changed
        self._reconnect = reconnect
        self._connect = connect
        self._pool = ConnectionPool(connection.config, connect)
        self._owns = connection.state is ConnectionState.CLOSED
        self._listing_headers: Mapping[str, Any] | None = None
        self._listing: ToolListing | None = None
        self._expires_at: float | None = None
        self._failures = 0
        self._scope: anyio.CancelScope | None = None  # made in start(), inside the event loop
        self._begin()
        self._stop_listening: tuple[Callable[[], None], ...] = ()

    def _begin(self) -> None:
        self._wanted = anyio.Event()
        self._settled = anyio.Event()
        self._listed = anyio.Event()
        self._done = anyio.Event()

    async def start(self) -> None:
        """Start connecting and listing; see `settled`."""
        self._scope = anyio.CancelScope()
        self._begin()
        self._pool = ConnectionPool(self.config, self._connect)
        try:
            if self._headers_supplier is not None and self._owns:
                try:
                    headers = await _supplied(self._headers_supplier, self.name, InvocationContext())
                except Exception as error:  # noqa: BLE001 - a supplier may support only calls with a context
                    _logger.info("the server %r is listed with the configured headers: %r", self.name, error)
                    headers = {}
                self._listing_headers = headers
                self.connection = self._connect(with_headers(self.config, headers))
            self._stop_listening = (
                self.connection.on_tools_changed(self.want),
                self.connection.on_state(self._on_state),
            )
            await self.connection.open(wait=False)
        except BaseException:
            self._end()  # release waiters: no task will list
            raise
        start_detached(self._run, f"tools of {self.name}")

    async def settled(self) -> None:
        """Wait until the tools are listed for the first time, or have failed to list."""
        await self._settled.wait()

    async def aclose(self) -> None:
        """Close all connections, except a connection that was open before."""
        if self._scope is not None:
            self._scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pool.aclose)
            if self._owns:
                await self.connection.aclose()
        if self._stop_listening:
            await self._done.wait()
        for stop in self._stop_listening:
            stop()
        self._stop_listening = ()

    def call_tool(
        self, name: str, arguments: Mapping[str, Any], *, context: InvocationContext, options: CallOptions
    ) -> Coroutine[Any, Any, Json]:
        """Call a tool with the context's identity; see `bridge.client.connection.connection.Connection.call_tool`."""
        if self._headers_supplier is None and self._meta_supplier is None:
            if context.meta:
                options = replace(options, meta=context.meta)
            return self.connection.call_tool(name, arguments, context=context, options=options)
        return self._call_supplied(name, arguments, context, options)

    async def _call_supplied(
        self, name: str, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions
    ) -> Json:
        options = replace(options, meta=await self._meta(context))
        async with self._connection_for(context) as connection:
            return await connection.call_tool(name, arguments, context=context, options=options)

    async def request(self, method: str, params: Mapping[str, Any], context: InvocationContext) -> Json:
        """Send another request with the context's identity; see `Connection.request`."""
        if meta := await self._meta(context):
            params = {**params, "_meta": meta}
        async with self._connection_for(context) as connection:
            return await connection.request(method, params, context=context)

    async def _meta(self, context: InvocationContext) -> Mapping[str, Any] | None:
        """Merge the caller's ``_meta`` with the supplier's, which takes precedence."""
        if self._meta_supplier is None:
            return context.meta or None
        return {**context.meta, **await _supplied(self._meta_supplier, self.name, context)}

    @asynccontextmanager
    async def _connection_for(self, context: InvocationContext) -> AsyncIterator[Connection]:
        """Borrow the connection that sends the headers of a call."""
        headers = self._listing_headers
        if self._headers_supplier is not None:
            headers = await _supplied(self._headers_supplier, self.name, context)
        if headers == self._listing_headers:
            yield self.connection
        else:
            async with self._pool.connection(headers or {}) as connection:
                yield connection

    @property
    def has_expired(self) -> bool:
        """True if the list's TTL has passed and the server does not announce changes."""
        return (
            self._expires_at is not None
            and anyio.current_time() >= self._expires_at
            and self.connection.state is ConnectionState.READY
            and not self._announces_changes
        )

    def want(self) -> None:
        """Request a new list of the tools."""
        self._wanted.set()

    async def refresh(self) -> None:
        """List the tools again, and wait until that has succeeded or failed."""
        if not self._done.is_set():
            listed = self._listed
            self.want()
            await listed.wait()

    @property
    def _announces_changes(self) -> bool:
        info = self.connection.server_info
        return info is not None and info.announces_tools

    def _on_state(self, state: ConnectionState) -> None:
        self._state_changed(state)
        if state is ConnectionState.READY and (self.problem is not None or not self.is_listed):
            self.want()

    async def _run(self) -> None:
        try:
            assert self._scope is not None
            with self._scope:
                await self.connection.settled()
                if self.connection.state is not ConnectionState.READY:
                    self.problem = self.connection.last_error
                    self._settled.set()
                    await self._wait()
                while True:
                    await self._list()
                    self._settled.set()
                    await self._wait()
        except Exception:
            _logger.exception("internal error: the tools of the server %r are no longer updated", self.name)
        finally:
            self._end()

    def _end(self) -> None:
        self._done.set()
        self._settled.set()
        self._listed.set()

    async def _wait(self) -> None:
        """Wait until the tools must be listed."""
        while not self._wanted.is_set():
            seconds = self._seconds_to_wait()
            await self._reconnect.wait(self._wanted, MAX_IDLE_SECONDS if seconds is None else seconds)
            if seconds is not None:
                self.want()
            self._pool.drop_idle()

    def _seconds_to_wait(self) -> float | None:
        """Seconds until the tools are listed without a notification; None for never."""
        if self.connection.state is not ConnectionState.READY:
            return None
        if self.problem is not None:
            return self._reconnect.delay_seconds(self._failures)
        if self._expires_at is None or self._announces_changes:
            return None
        return max(self._expires_at - anyio.current_time(), MIN_EXPIRY_SECONDS)

    async def _list(self) -> None:
        listed = self._listed
        self._wanted = anyio.Event()  # requests from here on need another list
        self._listed = anyio.Event()
        try:
            listing = await self.connection.list_tools()
        except ServerError as error:
            if not (isinstance(error, ServerRefusedError) and error.code == _METHOD_NOT_FOUND):
                self.problem = error
                self._failures += 1
                severity = logging.WARNING if self._failures == 1 else logging.DEBUG
                _logger.log(severity, "the tools of the server %r cannot be listed: %s", self.name, error)
                listed.set()
                return
            listing = ToolListing([], None)  # the server has no tools capability
        self.problem, self._failures = None, 0
        ttl_seconds = listing.ttl_seconds
        self._expires_at = None if ttl_seconds is None else anyio.current_time() + ttl_seconds
        listing = listing._replace(ttl_seconds=None)
        if listing != self._listing:
            await self._read(listing)
            self._listing = listing
            self.is_listed = True
            self._changed()
        listed.set()

    async def _read(self, listing: ToolListing) -> None:
        """Create the tools in batches, so that other tasks can run."""
        tools: dict[str, Tool] = {}
        skipped = list(listing.malformed)
        for number, wire in enumerate(listing.tools):
            if number % _TOOLS_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()
            try:
                tool = remote_tool(
                    wire,
                    self,
                    trusted=self.config.trusted,
                    validates_results=self._validates_results,
                    refuses_unjudged=self.config.unjudged_results == "refuse",
                )
            except (WireError, DefinitionError) as error:
                skipped.append(str(error))
                continue
            if tool.name in tools:
                skipped.append(f"the tool {tool.name!r} is listed twice")
            else:
                tools[tool.name] = tool
        for reason in skipped:
            _logger.warning("server %r: left out: %s", self.name, reason)
        self.tools = tuple(tools.values())
        self.skipped = (*listing.refused, *skipped)


async def _supplied(supplier: HeaderSupplier, server: str, context: InvocationContext) -> Mapping[str, Any]:
    headers = supplier(server, context)
    return await headers if inspect.isawaitable(headers) else headers

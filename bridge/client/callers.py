"""Connections of callers: each caller of a gateway reaches a server over a connection of its own.

A connection signs its requests with one caller's credential, so that sessions and answers are never shared.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from pydantic_core import to_json

from bridge.client.auth.ready import ReadyAuth
from bridge.client.connection.list_methods import TOOLS
from bridge.client.connection_pool import KeyedConnections
from bridge.client.listed_items import made_items
from bridge.errors import ServerAuthError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Mapping

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.direct_calls import ResultReceiver
    from bridge.client.connection.requests import SentCall
    from bridge.client.connection.running_call import CallOptions
    from bridge.client.connection.status import Era
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Json

MAX_IDLE_CONNECTIONS = 1000
"""Maximum idle connections of the callers of one server."""


class CallerAuth(ReadyAuth):
    """One caller's credential for one server, which signs the requests of the caller's connection."""

    owner: Hashable
    """The caller, among whom the connections are shared fairly."""
    on_end: Callable[[], None] | None = None
    """Called when the credential must not be used any more; set by the connections."""

    @abstractmethod
    async def prepare(self) -> None:
        """Make sure that there is a credential, before a request is sent.

        Raises:
            ServerAuthError: There is none.
        """

    @abstractmethod
    async def refused(self, error: ServerAuthError) -> ServerAuthError:
        """Forget a credential that the server has refused; return the error for the caller."""


class CallerAuths(Protocol):
    """The credentials of the callers of one server."""

    def of(self, caller: Caller | None, headers: Mapping[str, str]) -> CallerAuth | None:
        """Return the credential of a caller, the same object while its connection may be used.

        Args:
            caller: The caller; None if it is anonymous.
            headers: HTTP headers of its request with lower-case names; empty if they are not known.

        Returns:
            The credential, which may have to be obtained; None if the configuration gives one to such callers.

        Raises:
            ServerAuthError: Such callers can have none.
        """
        ...


class CallerListing:
    """List of a server's tools, as some callers see it.

    Attributes:
        digest: Digest of the list.
        tools: The tools.
    """

    def __init__(self, digest: bytes, tools: tuple[Tool, ...]) -> None:
        self.digest = digest
        self.tools = tools


class LeasedCall:
    """A `bridge.client.connection.requests.SentCall` over a connection that is not idle until the call has ended."""

    __slots__ = ("leave", "sent")
    sent: SentCall | None

    def __init__(self, leave: Callable[[], None]) -> None:
        self.leave = leave

    def continue_in_task(self) -> None:
        """Let a task wait for the result; see `SentCall.continue_in_task`."""
        assert self.sent is not None
        self.sent.continue_in_task()

    async def finished(
        self, name: str, arguments: Mapping[str, Any], context: InvocationContext, options: CallOptions
    ) -> Json:
        """Continue the call; see `SentCall.finished`."""
        assert self.sent is not None
        try:
            return await self.sent.finished(name, arguments, context, options)
        finally:
            self.leave()


class _Pool(KeyedConnections[CallerAuth]):
    @property
    def max_idle(self) -> int:
        """Maximum idle connections."""
        return MAX_IDLE_CONNECTIONS


class CallerConnections:
    """The connections of the callers of one server.

    Args:
        config: The server.
        connect: Creates a connection with an authentication.
        auths: The credentials.
    """

    def __init__(
        self,
        config: ServerConfig,
        connect: Callable[[ServerConfig, httpx2.Auth], Connection],
        auths: CallerAuths,
    ) -> None:
        self._config = config
        self._connect = connect
        self._auths = auths
        self._pool = _Pool(config.name, self._opened, owner_of=lambda auth: auth.owner)
        self._listings: WeakValueDictionary[bytes, CallerListing] = WeakValueDictionary()
        self._followed: WeakSet[Connection] = WeakSet()
        self.era: Era | None = None
        """Era of the connection that was used last; None before the first."""

    def __len__(self) -> int:
        return len(self._pool)

    @asynccontextmanager
    async def connection(self, caller: Caller | None, headers: Mapping[str, str]) -> AsyncIterator[Connection | None]:
        """Borrow the connection of a caller; None if the configuration gives a credential to such callers.

        Raises:
            ServerAuthError: The caller has no credential, or the server has refused it.
            ServerUnavailableError: The server cannot be reached.
        """
        auth = self._auths.of(caller, headers)
        if auth is None:
            yield None
            return
        await auth.prepare()
        try:
            async with self._pool.borrowed(auth) as connection:
                self.era = connection.era
                yield connection
        except ServerAuthError as error:
            self._pool.discard(auth)
            raise await auth.refused(error) from error

    def send_call(
        self,
        caller: Caller | None,
        name: str,
        arguments: Mapping[str, Any],
        capabilities: Json,
        receive: ResultReceiver,
    ) -> LeasedCall | None:
        """Send a call at once over the open connection of a caller; see `requests.send_call`."""
        try:
            auth = self._auths.of(caller, {})
        except ServerAuthError:
            return None  # raised again by `connection`
        if auth is None or auth.ready_headers() is None or (leased := self._pool.lease(auth)) is None:
            return None
        connection, leave = leased
        call = LeasedCall(leave)

        def received(wire: Json | None) -> bool:
            is_over = receive(wire)
            if wire is not None and is_over:
                call.leave()
            return is_over

        assert connection.send_call is not None, "it is ready"
        call.sent = connection.send_call(name, arguments, capabilities, received)
        if call.sent is None:
            call.leave()
            return None
        return call

    async def list_tools(
        self, connection: Connection, make: Callable[[Json], Tool], changed: Callable[[], None]
    ) -> CallerListing:
        """List the tools for a caller; callers with the same list get the same object.

        Args:
            connection: The caller's connection.
            make: Creates a tool.
            changed: Called when the list has, or may have, changed.

        Raises:
            ServerError: They cannot be listed.
        """
        listed = await connection.list_items(TOOLS)
        if connection not in self._followed:
            self._followed.add(connection)
            connection.on_list_changed("tools", changed)
        digest = sha256(to_json(listed.items)).digest()
        listing = self._listings.get(digest)
        if listing is None:
            tools, _ = await made_items(self._config.name, make, attrgetter("name"), (TOOLS, listed))
            listing = self._listings[digest] = CallerListing(digest, tuple(tools))
        return listing

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def drop_idle(self) -> None:
        """Close the connections that were idle for too long."""
        self._pool.drop_idle()

    def _opened(self, auth: CallerAuth) -> Connection:
        auth.on_end = partial(self._pool.discard, auth)
        return self._connect(self._config, auth)

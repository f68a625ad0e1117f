"""Connections of callers: each caller of a gateway reaches a server over a connection of its own.

A connection signs its requests with one caller's credential, so that sessions and answers are never shared.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from pydantic_core import to_json

from bridge.client.auth.ready import ReadyAuth
from bridge.client.connection.list_methods import PROTOCOL_LISTS, TOOLS, Listed
from bridge.client.connection_pool import KeyedConnections
from bridge.client.uris import is_within
from bridge.errors import ServerAuthError, ServerFailure, ServerRefusedError
from bridge.types import FEATURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping

    import httpx2

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.connection import Connection
    from bridge.client.connection.direct_calls import ResultReceiver
    from bridge.client.connection.list_methods import ListMethod
    from bridge.client.connection.requests import SentCall
    from bridge.client.connection.running_call import CallOptions
    from bridge.client.connection.status import Era
    from bridge.prompts.prompt import Prompt
    from bridge.resources.resource import Resource, ResourceTemplate
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Feature, Json

_logger = logging.getLogger("bridge.client")
MAX_IDLE_CONNECTIONS = 1000
"""Maximum idle connections of the callers of one server."""
MAX_IDLE_PROCESSES = 50
"""Maximum idle processes of the callers of one server."""


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


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False, kw_only=True)
class CallerListing:
    """Lists of a server's tools, resources and prompts, as some callers see them."""

    digest: bytes
    """Digest of the lists."""
    tools: tuple[Tool, ...]
    """The tools."""
    resources: tuple[Resource | ResourceTemplate, ...]
    """The resources and templates that may be used, by their URIs on the server."""
    prompts: tuple[Prompt, ...]
    """The prompts that may be used."""


class CallerFactory(Protocol):
    """Makes what is listed for callers."""

    async def made(self, digest: bytes, lists: Mapping[ListMethod, Listed]) -> CallerListing:
        """Return the items of lists."""
        ...


class Lease(NamedTuple):
    """An open connection of a caller, which is not idle meanwhile."""

    connection: Connection
    leave: Callable[[], None]
    """Called once, when it is not used any more."""
    refused: Callable[[ServerAuthError], Awaitable[ServerAuthError]]
    """Called after the server has refused the credential; returns the error for the caller."""


class LeasedCall:
    """A `bridge.client.connection.requests.SentCall` over a leased connection."""

    __slots__ = ("_lease", "sent")
    sent: SentCall | None

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

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
        except ServerAuthError as error:
            raise await self._lease.refused(error) from error
        finally:
            self._lease.leave()


class _Watches:
    """Listeners of the resources that one caller watches."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Callable[[str], None]]] = []

    def add(self, uri: str, listener: Callable[[str], None]) -> Callable[[], bool]:
        """Add a listener; return a function that removes it, and returns True if it was the last one of its URI."""
        added = (uri, partial(listener))  # the same listener may be added twice

        def end() -> bool:
            if added not in self._listeners:
                return False
            self._listeners.remove(added)
            return all(other != uri for other, _ in self._listeners)

        self._listeners.append(added)
        return end

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()

    def notify(self, uri: str) -> None:
        """Notify those who watch a resource, or a resource that it is part of."""
        for watched, listener in tuple(self._listeners):
            if is_within(watched, uri):
                listener(uri)


class _Pool(KeyedConnections[CallerAuth]):
    def __init__(self, config: ServerConfig, connect: Callable[[CallerAuth], Connection]) -> None:
        super().__init__(config.name, connect, owner_of=lambda auth: auth.owner)
        self._config = config
        self._watches: WeakKeyDictionary[Connection, _Watches] = WeakKeyDictionary()

    def watches_of(self, connection: Connection) -> _Watches:
        """Return what is watched over a connection."""
        watches = self._watches.get(connection)
        if watches is None:
            watches = self._watches[connection] = _Watches()
            connection.on_updated(watches.notify)
        return watches

    def _discarded(self, connection: Connection) -> None:
        """End what is watched, also before the connection is closed."""
        if (watches := self._watches.pop(connection, None)) is not None:
            watches.clear()

    @property
    def max_idle(self) -> int:
        """Maximum idle connections."""
        return MAX_IDLE_CONNECTIONS if self._config.process_per is None else MAX_IDLE_PROCESSES

    @property
    def idle_seconds(self) -> float:
        """Seconds after which an idle connection is closed."""
        return super().idle_seconds if self._config.process_per is None else self._config.idle_seconds


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
        self._config = replace(config, start="eager")
        self._connect = connect
        self._auths = auths
        self._pool = _Pool(config, self._opened)
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
            raise await self._refused(auth, error) from error

    async def _refused(self, auth: CallerAuth, error: ServerAuthError) -> ServerAuthError:
        self._pool.discard(auth)
        return await auth.refused(error)

    def lease(self, caller: Caller | None, headers: Mapping[str, str]) -> Lease | None:
        """Borrow the connection of a caller without waiting; None if `connection` has to open it, or to refuse it."""
        try:
            auth = self._auths.of(caller, headers)
        except ServerAuthError:
            return None
        if auth is None or auth.ready_headers() is None or (leased := self._pool.lease(auth)) is None:
            return None
        return Lease(*leased, partial(self._refused, auth))

    def send_call(
        self,
        caller: Caller | None,
        name: str,
        arguments: Mapping[str, Any],
        capabilities: Json,
        receive: ResultReceiver,
    ) -> LeasedCall | None:
        """Send a call at once over the open connection of a caller; see `requests.send_call`."""
        lease = self.lease(caller, {})
        if lease is None:
            return None
        call = LeasedCall(lease)

        def received(wire: Json | None) -> bool:
            is_over = receive(wire)
            if wire is not None and is_over:
                lease.leave()
            return is_over

        assert lease.connection.send_call is not None, "it is ready"
        call.sent = lease.connection.send_call(name, arguments, capabilities, received)
        if call.sent is None:
            lease.leave()
            return None
        return call

    async def list_features(
        self, connection: Connection, factory: CallerFactory, changed: Callable[[Feature], None]
    ) -> CallerListing:
        """List tools, resources and prompts for a caller; callers with the same lists get the same object.

        Args:
            connection: The caller's connection.
            factory: Makes what is listed.
            changed: Called with a feature whose list has, or may have, changed.

        Raises:
            ServerError: The tools cannot be listed, or the credential was refused.
        """
        lists: dict[ListMethod, Listed] = {}
        for method in PROTOCOL_LISTS:
            try:
                lists[method] = await connection.list_items(method)
            except ServerRefusedError as error:
                if method is TOOLS:
                    raise
                _logger.warning("server %r: its %ss are left out: %s", self._config.name, method.noun, error)
                lists[method] = Listed([])
        if connection not in self._followed:
            self._followed.add(connection)
            for feature in FEATURES:
                connection.on_list_changed(feature, partial(changed, feature))
        contents = [[listed.items, dict(listed.refused)] for listed in lists.values()]
        digest = sha256(to_json(contents)).digest()
        listing = self._listings.get(digest)
        if listing is None:
            listing = self._listings[digest] = await factory.made(digest, lists)
        return listing

    async def watch(
        self, caller: Caller | None, headers: Mapping[str, str], uri: str, listener: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Call a listener after each change of a resource's content, over the connection of a caller, which stays open.

        It ends with the caller's credential.

        Args:
            caller: As for `connection`.
            headers: As for `connection`.
            uri: The URI on the server.
            listener: Called with the URI, or that of a part of the resource.

        Returns:
            A function that ends it; idempotent. None if the configuration gives a credential to such callers.

        Raises:
            ServerAuthError: As for `connection`.
            ServerError: The server is unavailable, or does not announce changes of this resource.
        """
        async with self.connection(caller, headers) as connection:
            if connection is None:
                return None
            auth = self._auths.of(caller, headers)
            assert auth is not None, "it has a connection"
            leased = self._pool.lease(auth, is_ready=False)
            if leased is None or leased[0] is not connection:
                raise ServerAuthError(_ended(self._config.name))  # the credential has ended meanwhile
            leave = leased[1]
            end, has_ended = self._pool.watches_of(connection).add(uri, listener), False

            def stop() -> None:
                nonlocal has_ended
                if end():
                    connection.unwatch(uri)
                if not has_ended:
                    has_ended = True
                    leave()

            try:
                await connection.watch(uri)
            except BaseException:
                stop()
                raise
            return stop

    @property
    def is_busy(self) -> bool:
        """True while connections are used."""
        return self._pool.is_busy

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    def drop_idle(self) -> None:
        """Close the connections that were idle for too long."""
        self._pool.drop_idle()

    def _opened(self, auth: CallerAuth) -> Connection:
        auth.on_end = partial(self._pool.discard, auth)
        return self._connect(self._config, auth)


def _ended(server: str) -> ServerFailure:
    return ServerFailure(server=server, phase="authorizing", reason="the caller's credential has ended")

"""Events of remote servers: their types, and subscriptions to them (SEP-3415).

The data of an event is untrusted: it is what another system has written.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import anyio

from bridge.client.connection.list_methods import EVENTS, Listed
from bridge.client.event_stream import PolledStream, PushedStream
from bridge.client.listed_items import all_entries, logged_unless_only, made_items, require_server
from bridge.errors import DefinitionError, ServerFailure, ServerUnavailableError
from bridge.events.occurrence import EventRequest
from bridge.events.source import Events
from bridge.text import nearest
from bridge.tools.checks import require_name
from bridge.tools.context import InvocationContext
from bridge.wire.events import batch_from_wire, event_type_from_wire, request_to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.resources import RemoteServers
    from bridge.client.tool_catalog import RemoteName
    from bridge.client.upstream import Upstream
    from bridge.events.event_type import Delivery, EventType
    from bridge.events.occurrence import Event, EventBatch, EventStream
    from bridge.types import Json

    Naming = Callable[[Mapping[str, tuple[ServerConfig, Iterable[str]]], Iterable[str]], Mapping[RemoteName, str]]

MAX_TYPES = 1_000
"""Maximum types of a server, over all pages."""


class RemoteEvents(Events):
    """The events of a provider's servers, whose types are listed whenever they are asked for.

    They are named like tools: with several servers, the name begins with its server's.
    """

    def __init__(self, servers: RemoteServers, names: Naming) -> None:
        self._servers = servers
        self._names = names
        self.local_types: Events | None = None
        """Local types that are used together with these; no remote type gets the name of one."""

    @property
    def are_offered(self) -> bool:
        """True if a connected server announces events."""
        return any(map(announces_events, self._servers.upstreams.values()))

    async def list(
        self, context: InvocationContext | None = None, *, server: str | None = None
    ) -> tuple[EventType, ...]:
        """Return the types of all servers that can be reached, or of one.

        Types that are malformed, or differ from their pins, are left out and logged.

        Args:
            context: Context of the request; None for none.
            server: Name of a server; None for all.

        Raises:
            DefinitionError: There is no such server, or the provider is not open.
            ServerError: The server cannot be reached, or its types cannot be listed; of several, this is logged.
        """
        self._servers.require_open()
        upstreams = require_server(self._servers.upstreams, server)
        listed: dict[str, dict[str, EventType]] = {}
        for each in filter(announces_events, upstreams.values()):
            with logged_unless_only(each.name, upstreams, server, "events"):
                found = await self._listed(each, context or InvocationContext())
                listed[each.name] = {type_.name: type_ for type_ in found}
        taken = () if self.local_types is None else (each.name for each in self.local_types.local())
        named = self._names({name: (each.config, listed.get(name, ())) for name, each in upstreams.items()}, taken)
        return tuple(
            _localized(upstreams[origin.server], listed[origin.server][origin.tool], name)
            for origin, name in named.items()
            if server in {None, origin.server}
        )

    async def _listed(self, server: Upstream, context: InvocationContext) -> Iterable[EventType]:
        entries = await all_entries(server, EVENTS, context, max_entries=MAX_TYPES)
        make = partial(event_type_from_wire, server=server.name)
        listed, pins = Listed(entries), server.config.pins
        if pins is not None:
            listed = pins.admitted(server.name, EVENTS, listed)
        types, _ = await made_items(server.name, make, attrgetter("name"), (EVENTS, listed))
        return types

    def subscribe(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        cursor: str | None = None,
        max_age_seconds: float | None = None,
        delivery: Delivery | None = None,
        context: InvocationContext | None = None,
    ) -> EventSubscription:
        """Subscribe to events: ``async with provider.events.subscribe("build.finished") as events:``.

        Args:
            name: Local name of the type.
            arguments: Arguments of the subscription, such as filters.
            cursor: Position after which to begin, such as the last `EventSubscription.cursor`; None for now.
            max_age_seconds: Age in seconds from which events are not replayed; None for any age.
            delivery: ``push`` or ``poll``; None for push if the server has it.
            context: Invocation context, with the caller; None for none.
        """
        require_name(name, "the name of an event")
        request = EventRequest(arguments=arguments or {}, cursor=cursor, max_age_seconds=max_age_seconds)
        return EventSubscription(self, name, request, delivery, context or InvocationContext())


class EventSubscription:
    """Events of a subscription, as an asynchronous iterator within an ``async with`` block.

    It reconnects, and goes on after the last event. An event with an identifier that it has had recently is left out.
    The iteration ends with the block, and when the provider is closed or the server is removed.

    Attributes:
        cursor: Position after the event that was iterated last, or at which the subscription began; stored, it
            continues the subscription later.
        gaps: Number of times that its server has skipped events.
    """

    def __init__(
        self,
        events: RemoteEvents,
        name: str,
        request: EventRequest,
        delivery: Delivery | None,
        context: InvocationContext,
    ) -> None:
        self.cursor = request.cursor
        self.gaps = 0
        self._events = events
        self._name = name
        self._request = request
        self._delivery = delivery
        self._context = context
        self._waiting: list[Event] = []
        self._stream: EventStream | None = None
        self._server: Upstream | None = None
        self._batch_cursor = request.cursor
        self._is_over = False
        self._taking: anyio.CancelScope | None = None

    async def __aenter__(self) -> Self:
        """Begin the subscription.

        Raises:
            DefinitionError: There is no such type, or it is not delivered in this way.
            ServerError: The types cannot be listed, or the server is closed meanwhile.
        """
        types = {each.name: each for each in await self._events.list(self._context)}
        if (type_ := types.get(self._name)) is None:
            near = nearest(self._name, types)
            raise DefinitionError(f"there is no event {self._name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
        reader = type_.reader
        assert isinstance(reader, RemoteEventReader)
        self._server = reader.server
        self._stream = await reader.delivered_by(self._delivery).stream(self._request, self._context).__aenter__()
        reader.server.on_close.add(self._end)
        async with AsyncExitStack() as beginning:
            beginning.push_async_exit(self)
            if await self._take(self._stream):  # from now on, no event is missed
                beginning.pop_all()
        if self._is_over:
            phase = f"subscribing to {self._name!r}"
            raise ServerUnavailableError(ServerFailure(server=reader.server.name, phase=phase, reason="it is closed"))
        if not self._waiting:
            self.cursor = self._batch_cursor
        return self

    async def __aexit__(self, *error: object) -> None:
        """End the subscription.

        Raises:
            DefinitionError: It has not begun.
        """
        stream = self.require_begun()
        self._end()
        await stream.__aexit__(*error)

    def require_begun(self) -> EventStream:
        """Return the stream of events; raises `DefinitionError` outside of the block."""
        if self._stream is None:
            raise DefinitionError(
                f"the subscription to {self._name!r} has not begun: begin it by a block, with subscribe(…) as events, "
                "or async with for a McpToolProvider"
            )
        return self._stream

    def _end(self) -> None:
        if self._server is not None:
            self._server.on_close.discard(self._end)
        self._is_over = True
        if self._taking is not None:
            self._taking.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event.

        Raises:
            DefinitionError: The subscription has not begun.
            ServerRefusedError: The server has ended the subscription.
            ServerError: The events cannot be read.
            StopAsyncIteration: The subscription has ended here, or the provider or the server is closed.
        """
        stream = self.require_begun()
        while not self._waiting and not self._is_over:
            self.cursor = self._batch_cursor
            await self._take(stream)
        if self._is_over:
            raise StopAsyncIteration
        event = self._waiting.pop(0)
        if event.cursor is not None:
            self.cursor = event.cursor
        elif not self._waiting:
            self.cursor = self._batch_cursor
        return event

    async def _take(self, stream: EventStream) -> bool:
        """Wait for the next events; False if the subscription ends."""
        with anyio.CancelScope() as self._taking:
            batch = await stream.next()
            self.gaps += batch.truncated
            self._waiting += batch.events
            self._batch_cursor = batch.cursor
        return not self._is_over


class RemoteEventReader:
    """Reads the events of a server's type; a `bridge.events.occurrence.EventReader`.

    Args:
        server: The server.
        type_: The type, under its name there.
        name: Its local name.
        delivery: ``push`` or ``poll``; None for push if the server has it.
    """

    def __init__(self, server: Upstream, type_: EventType, name: str, delivery: Delivery | None = None) -> None:
        self.server = server
        self._type = type_
        self._name = name
        self._delivery = delivery

    def delivered_by(self, delivery: Delivery | None) -> RemoteEventReader:
        """Return a reader that has the events in one way.

        Raises:
            DefinitionError: The type is not delivered in this way.
        """
        ways = [each for each in ("push", "poll") if each in self._type.delivery]
        if delivery not in {None, *ways} or not ways:
            raise DefinitionError(
                f"the event {self._name!r} is not delivered by {delivery or 'push or poll'}: "
                f"its server has {', '.join(self._type.delivery)}"
            )
        return RemoteEventReader(self.server, self._type, self._name, delivery)

    async def poll(self, request: EventRequest, context: InvocationContext) -> EventBatch:
        """Return the events after a position, without waiting for one.

        Raises:
            ServerError: The request failed.
        """
        params = request_to_wire(self._type.name, request)
        wire = await self.server.request("events/poll", params, context)
        return batch_from_wire(wire, self._name, self.server.name)

    def stream(self, request: EventRequest, context: InvocationContext) -> EventStream:
        """Return the events as they occur."""
        may_push = "push" in self._type.delivery and self.server.era != "handshake"
        if (self._delivery or "push") == "push" and may_push:
            params: Json = request_to_wire(self._type.name, request)
            return PushedStream(self.server, params, self._name, context)
        return PolledStream(partial(self.poll, context=context), request)


def _localized(server: Upstream, type_: EventType, name: str) -> EventType:
    return replace(type_, name=name, reader=RemoteEventReader(server, type_, name))


def announces_events(server: Upstream) -> bool:
    """Return True if a connected server announces events."""
    info = server.connection.server_info
    if info is None:
        return False
    return EVENTS.extension in (info.capabilities.get("extensions") or {}) or "events" in info.capabilities

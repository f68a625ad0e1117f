"""ServedEvents: the events of one server, for its methods and its lifespan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bridge.events.event_type import sinks
from bridge.server.events.log import EventLog
from bridge.server.events.reader import LocalReader
from bridge.server.events.store import EventRecord, MemoryEventStore
from bridge.server.limits.shares import Shares

if TYPE_CHECKING:
    from bridge.events.event_type import Emission, EventType
    from bridge.events.occurrence import EventReader
    from bridge.events.source import Events
    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.events.store import EventStore
    from bridge.tools.context import InvocationContext


class ServedEvents:
    """The events of one server; a `bridge.events.event_type.EventSink`."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self.options = core.event_options
        self.log = EventLog(self._store())
        self.shares = Shares(self.options.max_streams)
        """Open streams."""
        sinks.add(self)

    def _store(self) -> EventStore:
        return MemoryEventStore(self.options)

    @property
    def _source(self) -> Events:
        assert self._core.features.events is not None, "they are offered"
        return self._core.features.events

    def emitted(self, feed: object, emission: Emission) -> None:
        """Take an event, if it is of a type of this server; in any thread."""
        for type_ in self._source.local():
            if type_.feed is feed:
                self.log.put(
                    EventRecord(
                        id=emission.id,
                        name=type_.name,
                        timestamp=emission.timestamp,
                        data=emission.data,
                        caller=emission.caller,
                    )
                )

    async def types(self, context: InvocationContext, access: Access) -> tuple[EventType, ...]:
        """Return the types that a caller sees.

        Raises:
            ServerError: They cannot be listed.
        """
        return tuple(each for each in await self._source.list(context) if access.shows(each))

    def reader_of(self, type_: EventType) -> EventReader:
        """Return what reads the events of a type."""
        return type_.reader or LocalReader(type_, self.log, self.options)

    async def run(self) -> None:
        """Store and deliver events until cancelled; then store those that are left."""
        try:
            await self.log.run()
        finally:
            with anyio.CancelScope(shield=True):
                await self.log.close()

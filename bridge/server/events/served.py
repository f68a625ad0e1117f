"""ServedEvents: the events of one server, for its methods and its lifespan."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import anyio

from bridge.events.event_type import sinks
from bridge.server.events.endings import changed, removed
from bridge.server.events.log import EventLog
from bridge.server.events.reader import LocalReader
from bridge.server.events.store import EventRecord, MemoryEventStore
from bridge.server.limits.shares import Shares, Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.events.event_type import Delivery, Emission, EventType
    from bridge.events.occurrence import EventReader
    from bridge.events.source import Events
    from bridge.server.auth.access import Access
    from bridge.server.events.options import EventOptions
    from bridge.server.events.store import EventStore
    from bridge.server.events.subscription import Subscription
    from bridge.server.events.webhooks import Webhooks
    from bridge.server.tasks.options import TaskOptions
    from bridge.server.tasks.shared.redis_store import RedisTaskStore
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

MAX_POSTS, MAX_POSTS_OF_ONE = 32, 8
"""Maximum of requests to callbacks at a time, and of those for one caller: others wait for their turn."""


class ServedEvents:
    """The events of one server; a `bridge.events.event_type.EventSink`.

    Args:
        name: Name of the server.
        source: Returns the types of events.
        options: The options.
        task_options: Returns the options of tasks, beside which events are kept.
        access_by_keys: Returns the permissions that a caller's keys have now; see `Auth.access_by_keys`.
    """

    def __init__(
        self,
        name: str,
        source: Callable[[], Events | None],
        options: EventOptions,
        task_options: Callable[[], TaskOptions],
        access_by_keys: Callable[[Caller], Sequence[Access] | None] = lambda _: None,
    ) -> None:
        self._name = name
        self._get_source = source
        self._task_options = task_options
        self._access_by_keys = access_by_keys
        self.options = options
        self.log = EventLog(self._store)
        self.shares = Shares(self.options.max_streams)
        """Open streams."""
        self.posting = Turns(MAX_POSTS, MAX_POSTS_OF_ONE)
        """Requests to callbacks under way."""
        sinks.add(self)

    @cached_property
    def webhooks(self) -> Webhooks | None:
        """The webhooks; None if the server has none."""
        if not self.options.webhooks:
            return None
        from bridge.server.events.webhooks import Webhooks  # noqa: PLC0415 - only with webhooks

        return Webhooks(self, self.options)

    def _store(self) -> EventStore:
        """Return a store beside the tasks, so that one option keeps both."""
        tasks = self._task_options().store
        if tasks is None or not tasks.is_durable:
            return MemoryEventStore(self.options)
        if tasks.is_shared:
            from bridge.server.events.redis_store import RedisEventStore  # noqa: PLC0415 - only with Redis

            return RedisEventStore(cast("RedisTaskStore", tasks).url, self._name, self.options)
        from bridge.server.tasks.sqlite_store import SqliteTaskStore  # noqa: PLC0415 - imports SQLite

        if not isinstance(tasks, SqliteTaskStore):
            return MemoryEventStore(self.options)
        from bridge.server.events.sqlite_store import SqliteEventStore  # noqa: PLC0415 - as above

        return SqliteEventStore(tasks, self.options)

    @property
    def _source(self) -> Events:
        source = self._get_source()
        assert source is not None, "they are offered"
        return source

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

    def may_see(self, subscription: Subscription, type_: EventType) -> bool:
        """Return True if the caller of a webhook may see a type now: by its last request, and by its keys."""
        by_keys = self._access_by_keys(subscription.of_caller)
        return subscription.access.shows(type_) and (
            by_keys is None
            or any(
                each.shows(type_) and not each.missing(type_.name) and each.profiles == subscription.access.profiles
                for each in by_keys
            )
        )

    def end_of(self, type_: EventType, arguments: Mapping[str, Any]) -> Json | None:
        """Return the error with which subscriptions to a type end, since it is gone or changed; None if they go on."""
        if type_.reader is not None:  # its server says so
            return None
        source = self._get_source()
        local = () if source is None else source.local()
        now = next((each for each in local if each.name == type_.name), None)
        if now is None:
            return removed(type_.name)
        if now.input_schema != type_.input_schema:
            return changed(now, arguments)
        return None

    def deliveries_of(self, type_: EventType) -> tuple[Delivery, ...]:
        """Return the ways in which this server can deliver the events of a type.

        Those of another server are polled there, or pushed, whatever their clients here have.
        """
        if type_.reader is None:
            return type_.delivery
        has_poll = "poll" in type_.delivery
        is_read = has_poll or "push" in type_.delivery
        return (*(("poll",) if has_poll else ()), *(("push", "webhook") if is_read else ()))

    def reader_of(self, type_: EventType) -> EventReader:
        """Return what reads the events of a type."""
        return type_.reader or LocalReader(type_, self.log, self.options)

    async def run(self) -> None:
        """Store and deliver events until cancelled; then store those that are left."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.log.run)
                if self.webhooks is not None:
                    tasks.start_soon(self.webhooks.run)
        finally:
            with anyio.CancelScope(shield=True):
                await self.log.close()

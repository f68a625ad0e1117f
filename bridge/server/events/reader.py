"""Reading of the events of this process: those of a type that a subscription selects."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any, Self

import anyio

from bridge.events.occurrence import Event, EventBatch
from bridge.server.events.store import cursor_before, record_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.events.event_type import EventType
    from bridge.events.occurrence import EventRequest
    from bridge.server.events.log import EventLog, Wakeup
    from bridge.server.events.options import EventOptions
    from bridge.server.events.store import EventRecord
    from bridge.tools.context import InvocationContext

MAX_EVENTS_AT_ONCE = 100
"""Maximum of events that are read at a time."""
MAX_BYTES_AT_ONCE = 1024 * 1024
"""Bytes of events after which no further one is read at a time."""
_PAGE_EVENTS = 200
_MAX_PAGES = 10
"""Pages of the log after which a subscription that selects nothing is answered."""
_logger = logging.getLogger("bridge.server")


class LocalReader:
    """Reads the events of a type of this process; a `bridge.events.occurrence.EventReader`.

    Args:
        type_: The type, under its name on this server.
        log: The events of the server.
        options: The options of events.
    """

    def __init__(self, type_: EventType, log: EventLog, options: EventOptions) -> None:
        self._type = type_
        self.log = log
        self.options = options

    async def poll(self, request: EventRequest, context: InvocationContext) -> EventBatch:
        """Return the events after a position, without waiting for one.

        Raises:
            EventStoreError: The store of events cannot be used.
        """
        if request.cursor is None:
            return EventBatch(cursor=await self.log.newest(), next_poll_seconds=self.options.poll_seconds)
        most = min(request.max_events or MAX_EVENTS_AT_ONCE, MAX_EVENTS_AT_ONCE)
        begin = None if request.max_age_seconds is None else time() - request.max_age_seconds
        cursor, events, size_bytes, truncated, has_more = request.cursor, list[Event](), 0, False, True
        for _ in range(_MAX_PAGES):
            page = await self.log.read(cursor, _PAGE_EVENTS)
            truncated = truncated or page.truncated
            has_more = page.has_more
            if page.truncated and not page.events:
                cursor = await self.log.newest()
            for index, (position, record) in enumerate(page.events):
                cursor = position
                if record.name != self._type.name:
                    continue
                if begin is not None and record.timestamp < begin:
                    truncated = True
                elif (data := await self._selected(record, request.arguments, context)) is not None:
                    events.append(_event_of(record, data, position))
                    size_bytes += len(record_to_json(record))
                    if len(events) >= most or size_bytes >= MAX_BYTES_AT_ONCE:
                        has_more = has_more or index + 1 < len(page.events)
                        return self._batch(events, cursor, truncated=truncated, has_more=has_more)
            if not has_more:
                break
        return self._batch(events, cursor, truncated=truncated, has_more=has_more)

    def _batch(self, events: list[Event], cursor: str, *, truncated: bool, has_more: bool) -> EventBatch:
        first = events[0].cursor if events else None
        return EventBatch(
            events=tuple(events),
            cursor=cursor,
            start=cursor_before(first) if truncated and first is not None else None,
            truncated=truncated,
            has_more=has_more,
            next_poll_seconds=self.options.poll_seconds,
        )

    async def _selected(
        self, record: EventRecord, arguments: Mapping[str, Any], context: InvocationContext
    ) -> Mapping[str, Any] | None:
        """Return the data that a subscription gets; None if it does not get the event."""
        if record.caller is not None and (context.caller is None or context.caller.identity != record.caller):
            return None
        if self._type.selector is None:
            return record.data
        try:
            return await self._type.selector(record.data, arguments, context)
        except Exception:
            _logger.exception("the function of the event %r failed; a subscription does not get one", self._type.name)
            return None

    def stream(self, request: EventRequest, context: InvocationContext) -> LocalStream:
        """Return the events as they occur."""
        return LocalStream(self, request, context)


class LocalStream:
    """Events of a subscription as they occur; a `bridge.events.occurrence.EventStream`."""

    def __init__(self, reader: LocalReader, request: EventRequest, context: InvocationContext) -> None:
        self._reader = reader
        self._request = request
        self._context = context
        self._is_first = True
        self._wakeup: Wakeup
        self._end: Callable[[], None]

    async def __aenter__(self) -> Self:
        """Begin the subscription."""
        self._wakeup, self._end = self._reader.log.woken()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the subscription."""
        self._end()

    async def next(self) -> EventBatch:
        """Wait for the next events, or for a position without events, of which the first comes at once.

        Raises:
            EventStoreError: The store of events cannot be used.
        """
        is_first, self._is_first = self._is_first, False
        with anyio.move_on_after(self._reader.options.heartbeat_seconds):
            while True:
                batch = await self._reader.poll(self._request, self._context)
                is_old = batch.has_more and not batch.events  # so that further events may be too old
                age = self._request.max_age_seconds if is_old else None
                self._request = replace(self._request, cursor=batch.cursor, max_age_seconds=age)
                if batch.events or batch.truncated or is_first:
                    return batch
                if not batch.has_more:
                    await self._wakeup.wait()
        return EventBatch(cursor=self._request.cursor)


def _event_of(record: EventRecord, data: Mapping[str, Any], cursor: str) -> Event:
    timestamp = datetime.fromtimestamp(record.timestamp, UTC)
    return Event(id=record.id, name=record.name, timestamp=timestamp, data=data, cursor=cursor)

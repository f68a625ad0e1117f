"""Conversion of events to MCP JSON and back (extension ``io.modelcontextprotocol/events``, SEP-3415)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bridge.errors import WireError
from bridge.events.event_type import DELIVERIES, EventType
from bridge.events.occurrence import ORIGIN_META_KEY, Event, EventBatch, EventRequest
from bridge.protocol.envelope import invalid_params
from bridge.text import short_repr
from bridge.types import require_object, require_text, without_none

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bridge.events.event_type import Delivery
    from bridge.types import Json

NOTIFICATIONS = "notifications/events/"
"""Beginning of the names of notifications of a stream."""
_MAX_CURSOR_CHARS = 1024
_MILLISECONDS = 1000
_MAX_AGE_MILLISECONDS = 10**12
_OWN_META = frozenset({"io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/serverInfo"})


def event_type_to_wire(type_: EventType, delivery: Collection[Delivery]) -> Json:
    """Convert a type to an entry of ``events/list``, with the ways in which a caller has its events."""
    meta = dict(type_.metadata) | ({} if type_.server is None else {ORIGIN_META_KEY: type_.server})
    return without_none(
        name=type_.name,
        title=type_.title,
        description=type_.description,
        delivery=list(delivery),
        inputSchema=dict(type_.input_schema),
        payloadSchema=dict(type_.payload_schema),
        _meta=meta or None,
    )


def event_type_from_wire(wire: Mapping[str, Any], server: str | None = None) -> EventType:
    """Convert an entry to a type.

    Args:
        wire: The entry.
        server: Configured name of its server.

    Raises:
        WireError: A member is missing or has the wrong type.
        DefinitionError: It violates the specification.
    """
    delivery = wire.get("delivery")
    known = tuple(each for each in DELIVERIES if isinstance(delivery, list) and each in delivery)
    if not known:
        raise WireError(f"'delivery' of an event lists some of {', '.join(DELIVERIES)}: {short_repr(wire)}")
    schemas: Json = {
        attribute: require_object(wire.get(member, {"type": "object"}), f"{member!r} of an event")
        for attribute, member in (("input_schema", "inputSchema"), ("payload_schema", "payloadSchema"))
    }
    return EventType(
        name=require_text(wire.get("name")),
        title=wire.get("title"),
        description=wire.get("description"),
        delivery=known,
        metadata=require_object(wire.get("_meta", {}), "'_meta' of an event"),
        source="an event" if server is None else f"server {server!r}",
        server=server,
        **schemas,
    )


def event_to_wire(event: Event, *, has_cursor: bool) -> Json:
    """Convert an event to an ``EventOccurrence``.

    Args:
        event: The event.
        has_cursor: False for one of a list that has a cursor itself.
    """
    meta = dict(event.metadata) | ({} if event.server is None else {ORIGIN_META_KEY: event.server})
    wire: Json = {
        "eventId": event.id,
        "name": event.name,
        "timestamp": event.timestamp.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": dict(event.data),
    }
    if has_cursor:
        wire["cursor"] = event.cursor
    return wire | {"_meta": meta} if meta else wire


def event_from_wire(wire: Any, name: str, server: str | None = None) -> Event:
    """Convert an ``EventOccurrence``.

    Args:
        wire: The occurrence.
        name: Local name of its type.
        server: Configured name of its server.

    Raises:
        WireError: A member is missing or has the wrong type.
    """
    event = require_object(wire, "an event")
    try:
        timestamp = datetime.fromisoformat(require_text(event.get("timestamp")))
    except ValueError as error:
        raise WireError(f"'timestamp' of an event is an ISO 8601 time: {short_repr(event)}") from error
    meta = event.get("_meta")
    return Event(
        id=require_text(event.get("eventId")),
        name=name,
        timestamp=timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC),
        data=require_object(event.get("data"), "'data' of an event"),
        cursor=cursor_in(event),
        server=server,
        metadata={key: meta[key] for key in meta if key not in _OWN_META} if isinstance(meta, dict) else {},
    )


def cursor_in(wire: Mapping[str, Any]) -> str | None:
    """Return the cursor of received JSON; None for none.

    Raises:
        WireError: It is not text.
    """
    cursor = wire.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise WireError(f"a cursor is text or null, not {short_repr(cursor)}")
    return cursor


def batch_to_wire(batch: EventBatch) -> Json:
    """Convert events to the result of ``events/poll``."""
    return {
        "events": [event_to_wire(each, has_cursor=False) for each in batch.events],
        "cursor": batch.cursor,
        "truncated": batch.truncated,
        "hasMore": batch.has_more,
        "nextPollMs": int(batch.next_poll_seconds * _MILLISECONDS),
    }


def batch_from_wire(wire: Mapping[str, Any], name: str, server: str | None = None) -> EventBatch:
    """Convert the result of ``events/poll``; the arguments and errors are those of `event_from_wire`."""
    events = wire.get("events")
    if not isinstance(events, list):
        raise WireError(f"'events' is a list: {short_repr(wire)}")
    seconds = wire.get("nextPollMs")
    known: Json = {"next_poll_seconds": seconds / _MILLISECONDS} if isinstance(seconds, int | float) else {}
    return EventBatch(
        events=tuple(event_from_wire(each, name, server) for each in events),
        cursor=cursor_in(wire),
        truncated=wire.get("truncated") is True,
        has_more=wire.get("hasMore") is True,
        **known,
    )


def request_to_wire(name: str, request: EventRequest) -> Json:
    """Convert what a subscription asks for to the parameters of its request."""
    age = request.max_age_seconds
    wire: Json = {"name": name, "arguments": dict(request.arguments), "cursor": request.cursor}
    if age is not None:
        wire["maxAgeMs"] = int(age * _MILLISECONDS)
    return wire if request.max_events is None else wire | {"maxEvents": request.max_events}


def request_from_wire(params: Mapping[str, Any]) -> EventRequest:
    """Read the parameters of a request.

    Raises:
        ProtocolError: They are malformed.
    """
    arguments, cursor = params.get("arguments"), params.get("cursor")
    if type(arguments) is not dict and arguments is not None:
        raise invalid_params("'arguments' must be an object")
    if cursor is not None and (type(cursor) is not str or len(cursor) > _MAX_CURSOR_CHARS):
        raise invalid_params(f"'cursor' must be null, or text of up to {_MAX_CURSOR_CHARS} characters")
    age = _whole_number(params, "maxAgeMs", 0)
    return EventRequest(
        arguments=arguments or {},
        cursor=cursor,
        max_age_seconds=None if age is None else age / _MILLISECONDS,
        max_events=_whole_number(params, "maxEvents", 1),
    )


def _whole_number(params: Mapping[str, Any], name: str, least: int) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= _MAX_AGE_MILLISECONDS:
        raise invalid_params(f"{name!r} must be a whole number of at least {least}")
    return value

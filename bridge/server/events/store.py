"""Stores of events: the interface, and the store in the process.

A store numbers events in the order in which they are appended. A cursor is the number of an event, with the identity of
the store, so that a cursor of another store is recognised.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from itertools import islice
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic_core import from_json, to_json

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.server.events.options import EventOptions
    from bridge.types import Json

OVERHEAD_BYTES = 512
"""Bytes that an event counts beside its data."""
STATE_SUFFIX = "/state"
"""End of the identifier under which the state of a subscription is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An event as it is stored."""

    id: str
    """Identifier of the event."""
    name: str
    """Name of its type on this server."""
    timestamp: float
    """Time at which it occurred, in seconds since 1970."""
    data: Json
    """Its data."""
    caller: tuple[str, str] | None = None
    """`Caller.identity` of the only caller who may see it; None for all."""


def record_to_json(record: EventRecord) -> bytes:
    """Return a record as JSON."""
    return to_json(asdict(record), inf_nan_mode="constants")


def record_from_json(text: str | bytes) -> EventRecord:
    """Return a record that `record_to_json` has written.

    Raises:
        ValueError: It is malformed.
    """
    try:
        fields = from_json(text)
        caller = fields.pop("caller")
        return EventRecord(**fields, caller=None if caller is None else (caller[0], caller[1]))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(repr(error)) from error


class EventStoreError(BridgeError):
    """A store cannot be read or written; the message says why."""


class Stored(NamedTuple):
    """A stored event."""

    cursor: str
    """Position after it."""
    record: EventRecord


class Page(NamedTuple):
    """Stored events after a position."""

    events: Sequence[Stored]
    truncated: bool
    """True if events between the position and the first one were dropped, or may have been."""
    has_more: bool
    """True if there are further events."""


class EventStore(Protocol):
    """Keeps events in their order. Every method raises `EventStoreError` if the store cannot be used."""

    is_shared: bool
    """True if several processes append events."""

    async def open(self) -> None:
        """Open the store."""
        ...

    async def append(self, records: Sequence[EventRecord]) -> None:
        """Add events, and drop the oldest ones over the maxima."""
        ...

    async def newest(self) -> str:
        """Return the position after the newest event."""
        ...

    async def read(self, cursor: str, limit: int) -> Page:
        """Return events after a position; those that are kept if it is none of this store."""
        ...

    async def wait(self, cursor: str) -> None:
        """Wait a while for events after a position; only for a shared store."""
        ...

    async def revision(self) -> int:
        """Return a number that changes with the stored subscriptions, but not with their states."""
        ...

    async def subscriptions(self) -> Mapping[str, bytes]:
        """Return the stored subscriptions and their states, by identifier."""
        ...

    async def subscription(self, identifier: str) -> bytes | None:
        """Return a subscription or a state; None if it is not stored."""
        ...

    async def save_subscription(self, identifier: str, record: bytes) -> None:
        """Store a subscription, or replace it; or the state of one that is stored."""
        ...

    async def delete_subscription(self, identifier: str, record: bytes | None = None) -> bool:
        """Delete a subscription and its state; return False if it is not stored, or not as a record that is given."""
        ...

    async def leads(self, process: str, seconds: float) -> bool:
        """Return True if a process delivers the events of this store to webhooks from now on, for a time.

        Args:
            process: Identifier of the process.
            seconds: Time in seconds after which another one may.
        """
        ...

    async def close(self) -> None:
        """Close the store; it may be opened again."""
        ...


def written_cursor(store: str, number: int) -> str:
    """Return the cursor of a number in a store."""
    return f"{store}.{number}"


def cursor_before(cursor: str) -> str:
    """Return the position before the event whose cursor is given."""
    store, _, number = cursor.rpartition(".")
    return written_cursor(store, int(number) - 1)


def read_cursor(cursor: str, store: str) -> int | None:
    """Return the number of a cursor; None for one of another store."""
    of, _, number = cursor.rpartition(".")
    return int(number) if of == store and number.isascii() and number.isdigit() and len(number) < 20 else None  # noqa: PLR2004 - digits of 64 bits


class MemoryEventStore:
    """Keeps events in this process; cursors end with it."""

    is_shared = False

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._id = token_hex(8)
        self._records: deque[tuple[EventRecord, int]] = deque()
        self._first = 1
        """Number of the first kept event."""
        self._subscriptions: dict[str, bytes] = {}
        self._revision = 0
        self._bytes = 0

    async def open(self) -> None:
        """Do nothing."""

    async def append(self, records: Sequence[EventRecord]) -> None:
        """Add events, and drop the oldest ones over the maxima."""
        for record in records:
            size_bytes = OVERHEAD_BYTES + len(record_to_json(record))
            self._records.append((record, size_bytes))
            self._bytes += size_bytes
        self._trim()

    def _trim(self) -> None:
        options, kept_from = self._options, time() - self._options.kept_seconds
        while self._records and (
            len(self._records) > options.max_events
            or self._bytes > options.max_bytes
            or self._records[0][0].timestamp < kept_from
        ):
            self._bytes -= self._records.popleft()[1]
            self._first += 1

    async def newest(self) -> str:
        """Return the position after the newest event."""
        return written_cursor(self._id, self._first + len(self._records) - 1)

    async def read(self, cursor: str, limit: int) -> Page:
        """Return events after a position; those that are kept if it is none of this store."""
        self._trim()
        number = read_cursor(cursor, self._id)
        truncated = number is None or number < self._first - 1
        start = 0 if truncated or number is None else number + 1 - self._first
        found = [
            Stored(written_cursor(self._id, self._first + start + index), record)
            for index, (record, _) in enumerate(islice(self._records, start, start + limit))
        ]
        return Page(found, truncated, start + limit < len(self._records))

    async def wait(self, cursor: str) -> None:
        """Refuse: no other process appends events."""
        raise NotImplementedError("events of one process are signalled by its log")

    async def revision(self) -> int:
        """Return a number that changes with the stored subscriptions; see `EventStore.revision`."""
        return self._revision

    async def subscriptions(self) -> Mapping[str, bytes]:
        """Return the stored subscriptions and their states, by identifier."""
        return dict(self._subscriptions)

    async def subscription(self, identifier: str) -> bytes | None:
        """Return a subscription or a state; None if it is not stored."""
        return self._subscriptions.get(identifier)

    async def save_subscription(self, identifier: str, record: bytes) -> None:
        """Store a subscription, or replace it; or the state of one that is stored."""
        is_state = identifier.endswith(STATE_SUFFIX)
        if is_state and identifier.removesuffix(STATE_SUFFIX) not in self._subscriptions:
            return
        self._subscriptions[identifier] = record
        self._revision += not is_state

    async def delete_subscription(self, identifier: str, record: bytes | None = None) -> bool:
        """Delete a subscription and its state; see `EventStore.delete_subscription`."""
        if identifier not in self._subscriptions or record not in {None, self._subscriptions[identifier]}:
            return False
        del self._subscriptions[identifier]
        self._subscriptions.pop(identifier + STATE_SUFFIX, None)
        self._revision += 1
        return True

    async def leads(self, process: str, seconds: float) -> bool:  # noqa: ARG002 - the protocol's
        """Return True: there is no other process."""
        return True

    async def close(self) -> None:
        """Keep the events, which a server that is started again has."""

"""Delivery of the events of one subscription to its callback: one after the other, each with retries.

event ─> POST ─┬─> 2xx ──────────────> the next event
├─> 410 ──────────────> the subscription ends
├─> 413 ──────────────> the event is given up
╰─> another failure ──> again, later and later ──> suspended until the caller asks again
"""

from __future__ import annotations

import logging
from dataclasses import replace
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Protocol

import anyio
from pydantic_core import to_json

from bridge.errors import ServerError
from bridge.events.occurrence import EventRequest
from bridge.events.signatures import signed_headers
from bridge.protocol.versions import FORBIDDEN
from bridge.server.events.callbacks import CallbackError
from bridge.server.events.store import EventStoreError
from bridge.server.events.subscription import STATE_SUFFIX
from bridge.tools.context import InvocationContext
from bridge.wire.events import event_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.events.event_type import EventType
    from bridge.events.occurrence import Event, EventReader
    from bridge.server.auth.access import Access
    from bridge.server.events.callbacks import Callbacks
    from bridge.server.events.log import EventLog
    from bridge.server.events.options import EventOptions
    from bridge.server.events.subscription import DeliveryState, Subscription
    from bridge.server.limits.shares import Turns
    from bridge.types import Json

MAX_BODY_BYTES = 256 * 1024
"""Maximum bytes of a message."""
MAX_ATTEMPTS = 6
"""Attempts to deliver an event, after which deliveries are suspended."""
_MAX_DELAY_SECONDS = 60.0
_AGAIN_SECONDS = 5.0
_GONE, _TOO_LARGE = 410, 413
_logger = logging.getLogger("bridge.server")


class DeliveredEvents(Protocol):
    """The events of a server that are delivered."""

    log: EventLog
    posting: Turns

    async def types(self, context: InvocationContext, access: Access) -> tuple[EventType, ...]:
        """Return the types that a caller sees."""
        ...

    def reader_of(self, type_: EventType) -> EventReader:
        """Return what reads the events of a type."""
        ...


class _EndedError(Exception):
    """The subscription has ended."""


class Delivery:
    """Delivers the events of one subscription.

    Args:
        events: The events of the server.
        callbacks: Sends the requests.
        subscription: The subscription.
        state: State of its deliveries.
        options: The options of events.
        ended: Called when the subscription has ended before its time.
    """

    def __init__(
        self,
        events: DeliveredEvents,
        callbacks: Callbacks,
        subscription: Subscription,
        state: DeliveryState,
        options: EventOptions,
        ended: Callable[[Subscription], Awaitable[None]],
    ) -> None:
        self.subscription = subscription
        self._events = events
        self._callbacks = callbacks
        self._state = state
        self._options = options
        self._ended = ended
        self._scope = anyio.CancelScope()
        self._refreshed = anyio.Event()

    def refresh(self, subscription: Subscription) -> None:
        """Go on with a subscription whose caller has asked again."""
        if subscription.refreshed_at > self.subscription.refreshed_at:
            self._refreshed.set()
        self.subscription = subscription

    def end(self) -> None:
        """Deliver nothing more."""
        self._scope.cancel()

    async def run(self) -> None:
        """Deliver events until the subscription ends."""
        with self._scope:
            while True:
                try:
                    await self._deliver_all()
                except _EndedError:
                    with anyio.CancelScope(shield=True):
                        await self._end()
                    return
                except (ServerError, EventStoreError) as error:
                    _logger.warning("the events of a webhook cannot be read: %s", error)
                    await anyio.sleep(_AGAIN_SECONDS)
                except Exception:
                    _logger.exception("a webhook could not be served")
                    await anyio.sleep(_AGAIN_SECONDS)

    async def _end(self) -> None:
        try:
            await self._ended(self.subscription)
        except EventStoreError as error:
            _logger.warning("a subscription that has ended could not be deleted: %s", error)

    async def _type(self, context: InvocationContext) -> EventType:
        """Return the type of the events.

        Raises:
            _EndedError: The caller does not see it any more.
        """
        types = await self._events.types(context, self.subscription.access)
        found = next((each for each in types if each.name == self.subscription.name), None)
        if found is None:
            error = {"code": FORBIDDEN, "message": "there are no such events any more"}
            await self._send_once("terminated", {"error": error})
            raise _EndedError
        return found

    async def _deliver_all(self) -> None:
        await self._while_suspended()
        subscription = self.subscription
        context = InvocationContext(caller=subscription.of_caller)
        type_ = await self._type(context)
        request = EventRequest(arguments=subscription.arguments, cursor=self._state.cursor)
        async with self._events.reader_of(type_).stream(request, context) as stream:
            while True:
                batch = await stream.next()
                if batch.truncated:
                    await self._send_once("gap", {"cursor": batch.cursor})
                for event in batch.events:
                    await self._deliver(event)
                if batch.cursor is not None and batch.cursor != self._state.cursor:
                    await self._save(replace(self._state, cursor=batch.cursor))

    async def _deliver(self, event: Event) -> None:
        """Deliver an event, or give it up.

        Raises:
            _EndedError: The callback is gone.
        """
        body = to_json(event_to_wire(event, has_cursor=True))
        if len(body) > MAX_BODY_BYTES:
            _logger.error("an event of %r has %d bytes as a webhook, and is given up", event.name, len(body))
            return
        attempts = 0
        while True:
            try:
                await self._post(event.id, body)
            except CallbackError as error:
                attempts += 1
                failed_since = self._state.failed_since or time()
                self._state = replace(self._state, last_error=error.reason, failed_since=failed_since)
                if error.status == _GONE:
                    raise _EndedError from error
                if error.status == _TOO_LARGE:
                    _logger.warning("a callback refuses an event of %r as too large; it is given up", event.name)
                    await self._save(replace(self._state, cursor=event.cursor or self._state.cursor))
                    return
                if attempts >= MAX_ATTEMPTS:
                    await self._save(replace(self._state, suspended_at=time()))
                    _logger.warning("webhooks of the subscription %s are suspended: %s", self.subscription.id, error)
                    await self._while_suspended()
                    attempts = 0
                    continue
                delay_seconds = min(self._options.retry_seconds * 2.0 ** (attempts - 1), _MAX_DELAY_SECONDS)
                await anyio.sleep(delay_seconds)
            else:
                state = replace(self._state, last_delivery_at=time(), last_error=None, failed_since=None)
                await self._save(replace(state, cursor=event.cursor or state.cursor))
                return

    async def _while_suspended(self) -> None:
        """Wait until the caller asks again, if deliveries are suspended."""
        suspended_at = self._state.suspended_at
        if suspended_at is None:
            return
        while self.subscription.refreshed_at < suspended_at:
            self._refreshed = anyio.Event()
            await self._refreshed.wait()
        await self._save(replace(self._state, suspended_at=None))

    async def _send_once(self, kind: str, members: Json) -> None:
        """Send a message that is no event, without retries."""
        body = to_json({"type": kind, **members})
        try:
            await self._post(f"msg_{kind}_{token_hex(16)}", body)
        except CallbackError as error:
            _logger.debug("a callback did not take a message of the type %r: %s", kind, error)

    async def _post(self, message_id: str, body: bytes) -> None:
        subscription = self.subscription
        headers = signed_headers(subscription.secrets(time()), message_id, body, subscription.id)
        async with self._events.posting.taken(subscription.account):
            await self._callbacks.post(subscription.url, body, headers)

    async def _save(self, state: DeliveryState) -> None:
        self._state = state
        await self._events.log.store.save_subscription(self.subscription.id + STATE_SUFFIX, state.to_json())

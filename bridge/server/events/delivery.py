"""Delivery of the events of one subscription to its callback: one after the other, each with retries.

    event ─> POST ─┬─> 2xx ──────────────> the next event
                   ├─> 410, 413 ─────────> the event is given up
                   ╰─> another failure ──> again, later and later ──> suspended until the caller asks again

What the caller may see is checked before each request. If that is over, or the type is gone, the callback is told, and
the subscription ends.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from secrets import token_hex
from time import time
from typing import TYPE_CHECKING, Any, Protocol

import anyio
from pydantic_core import to_json

from bridge.errors import ServerError, ServerRefusedError
from bridge.events.occurrence import EventRequest
from bridge.events.signatures import signed_headers
from bridge.server.auth.access import EVERYTHING
from bridge.server.events.callbacks import CallbackError
from bridge.server.events.endings import REVOKED, changed, ended_by, removed
from bridge.server.events.store import STATE_SUFFIX, EventStoreError
from bridge.tools.context import InvocationContext
from bridge.wire.events import event_to_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.events.event_type import EventType
    from bridge.events.occurrence import Event, EventBatch, EventReader, EventStream
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
TERMINATED_SECONDS = 5.0
"""Maximum seconds for which a subscription that has ended waits until its callback has taken the message."""
_DELAY_FACTOR = 4.0
_MAX_DELAY_SECONDS = 300.0
_AGAIN_SECONDS = 5.0
_MISSING_SECONDS = 30.0
_NOT_TAKEN = frozenset({410, 413})
"""Statuses of a callback that does not take an event, also later (SEP-3415, "Webhook event delivery")."""
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

    def may_see(self, subscription: Subscription, type_: EventType) -> bool:
        """Return True if the caller of a webhook may see a type now."""
        ...

    def end_of(self, type_: EventType, arguments: Mapping[str, Any]) -> Json | None:
        """Return the error with which subscriptions to a type end, since it is gone or changed; None if they go on."""
        ...


class _EndedError(Exception):
    """The subscription has ended.

    Attributes:
        error: The reason, which the callback is told.
    """

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.error = error


class _MissingError(Exception):
    """The type of another server is not there now."""


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
        self._has_ended = False

    def refresh(self, subscription: Subscription) -> None:
        """Go on with a subscription whose caller has asked again; once it has ended, another delivery does."""
        if self._has_ended:
            return
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
                except _EndedError as ended:
                    self._has_ended = True
                    _logger.info("the webhook %s ends: %s", self.subscription.id, ended.error["message"])
                    # At a shutdown the subscription stays stored, so that its callback is told after the next start.
                    with anyio.move_on_after(TERMINATED_SECONDS):
                        await self._send_once("terminated", {"error": ended.error})
                    with anyio.CancelScope(shield=True):
                        await self._end()
                    return
                except _MissingError:
                    await anyio.sleep(_MISSING_SECONDS)
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
            _EndedError: There is none any more, or the caller does not see it, or its arguments do not match.
            _MissingError: Its server cannot be reached, or has no such type.
        """
        subscription = self.subscription
        types = await self._events.types(context, EVERYTHING)
        found = next((each for each in types if each.name == subscription.name), None)
        if found is None and subscription.is_remote:
            raise _MissingError
        if found is None:
            raise _EndedError(removed(subscription.name))
        if found.reader is None and (error := changed(found, subscription.arguments)) is not None:
            raise _EndedError(error)
        self._check(found)
        return found

    def _check(self, type_: EventType) -> None:
        """Check that the caller may see the events, and that there are such.

        Raises:
            _EndedError: It may not, or there are none.
        """
        if (error := self._events.end_of(type_, self.subscription.arguments)) is not None:
            raise _EndedError(error)
        if not self._events.may_see(self.subscription, type_):
            raise _EndedError(REVOKED)

    async def _deliver_all(self) -> None:
        await self._while_suspended()
        subscription = self.subscription
        context = InvocationContext(caller=subscription.of_caller)
        type_ = await self._type(context)
        request = EventRequest(arguments=subscription.arguments, cursor=self._state.cursor)
        async with self._events.reader_of(type_).stream(request, context) as stream:
            is_opening = True
            while True:
                batch = await self._next(stream, is_opening=is_opening)
                is_opening = False
                self._check(type_)
                if batch.truncated:
                    await self._send_once("gap", {"cursor": batch.cursor if batch.start is None else batch.start})
                for event in batch.events:
                    await self._deliver(event, type_)
                if batch.cursor is not None and batch.cursor != self._state.cursor:
                    await self._save(replace(self._state, cursor=batch.cursor))

    @staticmethod
    async def _next(stream: EventStream, *, is_opening: bool) -> EventBatch:
        """Return the next events.

        Raises:
            _EndedError: The server of the events has ended the subscription.
        """
        try:
            return await stream.next()
        except ServerRefusedError as error:
            if (ended := ended_by(error, is_opening=is_opening)) is None:
                raise
            raise _EndedError(ended) from error

    async def _deliver(self, event: Event, type_: EventType) -> None:
        """Deliver an event, or give it up.

        Raises:
            _EndedError: The caller may not see it any more.
        """
        body = to_json(event_to_wire(event, has_cursor=True))
        if len(body) > MAX_BODY_BYTES:
            _logger.error("an event of %r has %d bytes as a webhook, and is given up", event.name, len(body))
            return
        attempts = 0
        while True:
            self._check(type_)
            try:
                await self._post(event.id, body)
            except CallbackError as error:
                attempts += 1
                failed_since = self._state.failed_since or time()
                self._state = replace(self._state, last_error=error.reason, failed_since=failed_since)
                if error.status in _NOT_TAKEN:
                    _logger.warning("a callback does not take an event of %r: %s; it is given up", event.name, error)
                    await self._save(replace(self._state, cursor=event.cursor or self._state.cursor))
                    return
                if attempts >= MAX_ATTEMPTS:
                    await self._save(replace(self._state, suspended_at=time()))
                    _logger.warning("webhooks of the subscription %s are suspended: %s", self.subscription.id, error)
                    await self._while_suspended()
                    attempts = 0
                    continue
                delay_seconds = min(self._options.retry_seconds * _DELAY_FACTOR ** (attempts - 1), _MAX_DELAY_SECONDS)
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

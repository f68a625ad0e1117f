"""Methods for events: list, poll, stream, subscribe, unsubscribe (``io.modelcontextprotocol/events``, SEP-3415)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio

from bridge.errors import ServerError, ServerRefusedError, ToolError
from bridge.events.event_type import problem_of
from bridge.protocol.envelope import invalid_params
from bridge.protocol.messages import ProtocolError
from bridge.protocol.subscriptions import Subscription
from bridge.protocol.versions import (
    FORBIDDEN,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNSUPPORTED,
)
from bridge.server.auth.identity import current_access, ending_with_credential, expiry_of_request
from bridge.server.channel import context_of
from bridge.server.events.endings import REVOKED, ended_by
from bridge.server.events.store import EventStoreError
from bridge.server.limits.memory import kept_bytes
from bridge.server.lists.listing import Edition, ListKind
from bridge.server.methods.extensions import ExtensionMethod, produced
from bridge.server.methods.method import MODERN, required_text
from bridge.server.methods.pages import page_of
from bridge.text import clip, nearest
from bridge.tools.toolbox import ToolBox
from bridge.wire.events import NOTIFICATIONS, batch_to_wire, event_to_wire, event_type_to_wire, request_from_wire
from bridge.wire.extension import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.events.event_type import Delivery, EventType
    from bridge.events.occurrence import EventReader, EventRequest
    from bridge.server.core import ServerCore
    from bridge.server.events.served import ServedEvents
    from bridge.server.events.webhooks import Webhooks
    from bridge.server.exchange import ServedExchange
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

MAX_KEPT_BYTES = 64 * 1024
"""Maximum memory of the parameters of a stream or webhook, which are kept while it lasts."""
_NO_BOX = ToolBox()


class EventMethod(ExtensionMethod):
    """Base of the methods for events."""

    extension = EVENTS
    delivery: Delivery = "poll"
    """Way in which the method delivers events."""

    def plan(self, exchange: ServedExchange) -> None:
        """Read the parameters."""
        super().plan(exchange)
        required_text(exchange.params, "name")
        exchange.found = request_from_wire(exchange.params)

    @property
    def _events(self) -> ServedEvents:
        return self._core.events

    async def run(self, exchange: ServedExchange) -> bytes:
        """Answer the request."""

        async def answer(context: InvocationContext) -> Json:
            try:
                return await self._answer(exchange, context)
            except ServerRefusedError as error:
                raise ProtocolError(error.code, error.message, error.data) from error
            except ServerError as error:
                raise ToolError(error.brief) from error
            except EventStoreError as error:
                raise ToolError("the events cannot be read now; try again later") from error

        return await produced(self._core, exchange, answer)

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        """Return the result."""
        raise NotImplementedError

    async def _found(self, exchange: ServedExchange, context: InvocationContext) -> tuple[EventType, EventRequest]:
        """Return the type of the request and what it asks for.

        Raises:
            ProtocolError: The caller sees no such type, the arguments do not match, or it is delivered otherwise.
        """
        request: EventRequest = exchange.found
        name = exchange.params["name"]
        types = {each.name: each for each in await self._events.types(context, exchange.access)}
        if (type_ := types.get(name)) is None:
            near = nearest(name, types)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ProtocolError(NOT_FOUND, f"there is no event {clip(name)!r}{hint}", {"kind": "event"})
        if exchange.access.missing(name):
            raise ProtocolError(FORBIDDEN, f"the event {clip(name)!r} needs a scope that was not granted")
        if self.delivery not in (ways := self._events.deliveries_of(type_)):
            message = f"the event {name!r} is not delivered by {self.delivery}, but by {', '.join(ways)}"
            raise ProtocolError(UNSUPPORTED, message, {"feature": "deliveryMode", "value": self.delivery})
        if type_.reader is None and (problem := problem_of(dict(request.arguments), type_.input_schema)) is not None:
            raise ProtocolError(INVALID_PARAMS, f"the arguments of the event {name!r} do not match: {problem}")
        return type_, request


class EventsList(EventMethod):
    """The types of events that a caller sees."""

    name = "events/list"

    def plan(self, exchange: ServedExchange) -> None:
        """Check that there are events."""
        ExtensionMethod.plan(self, exchange)

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        of_caller = self._core.event_deliveries(exchange.origin.caller, modern=exchange.modern)
        ways = {
            each: [way for way in self._events.deliveries_of(each) if way in of_caller]
            for each in await self._events.types(context, exchange.access)
        }
        kind: ListKind[EventType] = ListKind(
            "events", lambda _: (), lambda each: each.name, lambda each, _: event_type_to_wire(each, ways[each])
        )
        visible = [each for each, found in ways.items() if found]
        edition = Edition(None, _NO_BOX, visible, kind, self._core.options["page_size"])
        return page_of(edition, exchange)


class EventsPoll(EventMethod):
    """Events of one subscription, after a position."""

    name = "events/poll"

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        type_, request = await self._found(exchange, context)
        return batch_to_wire(await self._events.reader_of(type_).poll(request, context))


class EventsStream(EventMethod):
    """Events of one subscription, as they occur, until its client ends it."""

    name = "events/stream"
    eras = MODERN
    delivery = "push"

    def __init__(self, core: ServerCore) -> None:
        super().__init__(core)
        self._open: set[_Sending] = set()

    def plan(self, exchange: ServedExchange) -> None:
        """Read the parameters.

        Raises:
            ProtocolError: Too many streams are open, or the parameters are malformed or too large.
        """
        super().plan(exchange)
        shares = self._events.shares
        if not shares.has_room(exchange.origin.account):
            message = f"too many streams of events: a caller may open as many as stay free of {shares.places}"
            raise ProtocolError(RESOURCE_EXHAUSTED, message, {"limit": "streams"})
        _require_small(exchange.params)

    async def run(self, exchange: ServedExchange) -> bytes:
        """Serve a stream until its client disconnects, it is ended, or its credential is no longer valid."""
        subscription, sending = Subscription(exchange.id), _Sending(exchange)
        context = self._core.prepared(context_of(exchange))
        try:
            with self._events.shares.taking(exchange.origin.account), current_access(self._core.profile) as access:
                type_, request = await self._found(exchange, context)

                def end() -> Json | None:
                    now = access()
                    if now is None or not now.shows(type_) or now.missing(type_.name):
                        return REVOKED
                    return self._events.end_of(type_, request.arguments)

                self._open.add(sending)
                with sending.scope, ending_with_credential(sending.scope.cancel, self._core.profile):
                    await sending.run(self._events.reader_of(type_), request, context, end)
                if (error := sending.ended or end()) is not None:
                    await sending.send("terminated", {"error": error})
        except ServerRefusedError as error:
            raise ProtocolError(error.code, error.message, error.data) from error
        except ServerError as error:
            raise ProtocolError(INTERNAL_ERROR, error.brief) from error
        except EventStoreError as error:
            raise ProtocolError(INTERNAL_ERROR, "the events cannot be read now; try again later") from error
        finally:
            self._open.discard(sending)
        return exchange.write({"resultType": "complete", "_meta": subscription.meta})

    def close(self) -> None:
        """End all streams, each by its result."""
        for sending in tuple(self._open):
            sending.scope.cancel()


class EventsSubscribe(EventMethod):
    """A webhook of the caller, which begins, or goes on."""

    name = "events/subscribe"
    delivery = "webhook"

    def plan(self, exchange: ServedExchange) -> None:
        """Read the parameters.

        Raises:
            ProtocolError: They are malformed or too large.
        """
        super().plan(exchange)
        _require_small(exchange.params)

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        webhooks = _webhooks_of(self._events)
        type_, request = await self._found(exchange, context)
        return await webhooks.subscribe(type_, request, exchange.params, exchange.access, context, expiry_of_request())


class EventsUnsubscribe(EventMethod):
    """The end of a webhook."""

    name = "events/unsubscribe"

    async def _answer(self, exchange: ServedExchange, context: InvocationContext) -> Json:
        await _webhooks_of(self._events).unsubscribe(exchange.params["name"], exchange.found, exchange.params, context)
        return {}


def _require_small(params: Json) -> None:
    """Check the memory of parameters that are kept.

    Raises:
        ProtocolError: It is too much.
    """
    kept = kept_bytes(json.dumps(params).encode())  # which writes lone surrogates, too
    if kept > MAX_KEPT_BYTES:
        raise invalid_params(f"a subscription may take {MAX_KEPT_BYTES} bytes, not {kept}")


def _webhooks_of(events: ServedEvents) -> Webhooks:
    """Return the webhooks of a server.

    Raises:
        ProtocolError: It has none.
    """
    if events.webhooks is None:
        message = "this server sends no webhooks"
        raise ProtocolError(UNSUPPORTED, message, {"feature": "deliveryMode", "value": "webhook"})
    return events.webhooks


class _Sending:
    """A stream that may be ended.

    Args:
        exchange: Its request.
    """

    def __init__(self, exchange: ServedExchange) -> None:
        self._exchange = exchange
        self._subscription = Subscription(exchange.id)
        self.scope = anyio.CancelScope()
        self.ended: Json | None = None
        """The error with which the server of the events has ended the subscription; None if it has not."""

    async def send(self, kind: str, params: Json) -> None:
        """Send a notification of the stream."""
        await self._exchange.send(self._subscription.notification(f"{NOTIFICATIONS}{kind}", params))

    async def run(
        self, reader: EventReader, request: EventRequest, context: InvocationContext, end: Callable[[], Json | None]
    ) -> None:
        """Send the events as they occur, until ``end`` returns an error, or their server has ended the subscription."""
        is_active, cursor = False, request.cursor
        async with reader.stream(request, context) as stream:
            while end() is None:
                try:
                    batch = await stream.next()
                except ServerRefusedError as error:
                    self.ended = ended_by(error) if is_active else None
                    if self.ended is None:
                        raise
                    return
                if end() is not None:
                    return
                if not is_active or batch.truncated:
                    # A client that continues from this cursor must not miss the events that follow it.
                    before = batch.start if batch.start is not None else cursor
                    position = before if batch.events else batch.cursor
                    await self.send("active", {"cursor": position, "truncated": batch.truncated})
                elif not batch.events:
                    await self.send("heartbeat", {"cursor": batch.cursor})
                for event in batch.events:
                    await self.send("event", event_to_wire(event, has_cursor=True))
                is_active, cursor = True, batch.cursor

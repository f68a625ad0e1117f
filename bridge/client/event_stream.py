"""Streams of a remote server's events: by ``events/stream``, or by repeated ``events/poll`` (SEP-3415)."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import anyio

from bridge.client.connection.status import ReconnectPolicy
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerAuthError,
    ServerError,
    ServerFailure,
    ServerRefusedError,
    ServerUnavailableError,
    WireError,
)
from bridge.events.occurrence import EventBatch
from bridge.wire.events import NOTIFICATIONS, cursor_in, event_from_wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from bridge.client.upstream import Upstream
    from bridge.events.occurrence import Event, EventRequest
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

LEAST_POLL_SECONDS = 1.0
"""Least time between two polls without events, whatever the server asks for."""
MOST_POLL_SECONDS = 300.0
"""Most time between two polls."""
SILENT_SECONDS = 60.0
"""Time without any message after which a stream is lost: twice the longest time between two heartbeats."""
LASTING_SECONDS = 30.0
"""Seconds after which a lost stream resets the retry delay."""
_BUFFERED_BATCHES = 16
_REMEMBERED_IDS = 1_000
_logger = logging.getLogger("bridge.client")


class _RecentIds:
    """Identifiers of recent events, by which repeated ones are recognised."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def new(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Return the events that are not repeated."""
        found = []
        for each in events:
            if each.id not in self._ids:
                self._ids[each.id] = None
                found.append(each)
        while len(self._ids) > _REMEMBERED_IDS:
            del self._ids[next(iter(self._ids))]
        return tuple(found)


class PolledStream:
    """Events by repeated polls; a `bridge.events.occurrence.EventStream`.

    Args:
        poll: Returns the events of a request.
        request: What the subscription asks for.
        reconnect: Delays after failures.
    """

    def __init__(
        self,
        poll: Callable[[EventRequest], Awaitable[EventBatch]],
        request: EventRequest,
        reconnect: ReconnectPolicy | None = None,
    ) -> None:
        self._poll = poll
        self._request = request
        self._reconnect = reconnect or ReconnectPolicy()
        self._ids = _RecentIds()
        self._wait_seconds = 0.0
        self._failures = 0

    async def __aenter__(self) -> Self:
        """Do nothing."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""

    async def next(self) -> EventBatch:
        """Wait for the next events, or for a position without events, of which the first comes at once.

        Raises:
            ServerError: The request failed, and would fail again.
        """
        while True:
            await anyio.sleep(self._wait_seconds)
            try:
                batch = await self._poll(self._request)
            except (ServerUnavailableError, OutcomeUnknownError) as error:
                if isinstance(error, ServerAuthError):
                    raise
                self._failures += 1
                _logger.debug("a poll for events has failed: %s", error)
                self._wait_seconds = max(LEAST_POLL_SECONDS, self._reconnect.delay_seconds(self._failures))
                continue
            self._failures = 0
            events = _with_positions(batch, self._request.cursor)
            self._request = replace(self._request, cursor=batch.cursor)
            seconds = min(max(batch.next_poll_seconds, LEAST_POLL_SECONDS), MOST_POLL_SECONDS)
            self._wait_seconds = 0.0 if batch.has_more else seconds
            return replace(batch, events=self._ids.new(events))


def _with_positions(batch: EventBatch, before: str | None) -> tuple[Event, ...]:
    """Return the events of a poll with cursors: only the last one has the position after all of them."""
    last = len(batch.events) - 1
    return tuple(
        event if event.cursor is not None else replace(event, cursor=batch.cursor if index == last else before)
        for index, event in enumerate(batch.events)
    )


class PushedStream:
    """Events by ``events/stream``, again after each loss; a `bridge.events.occurrence.EventStream`.

    Args:
        server: The server.
        params: Parameters of the request.
        name: Local name of the type.
        context: Context of the subscription.
        reconnect: Delays after losses.
    """

    def __init__(
        self,
        server: Upstream,
        params: Json,
        name: str,
        context: InvocationContext,
        reconnect: ReconnectPolicy | None = None,
    ) -> None:
        self._server = server
        self._params = params
        self._name = name
        self._context = context
        self._reconnect = reconnect or ReconnectPolicy()
        self._ids = _RecentIds()
        self._tasks: TaskGroup
        self._buffer = deque[EventBatch | ServerError]()
        self._is_filled, self._is_taken = anyio.Event(), anyio.Event()
        self._silence: anyio.CancelScope | None = None

    async def __aenter__(self) -> Self:
        """Begin to receive."""
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._receive_all)
        return self

    async def __aexit__(self, *error: object) -> None:
        """End the subscription."""
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def next(self) -> EventBatch:
        """Wait for the next events, or for a position without events, of which the first comes at once.

        Raises:
            ServerError: The server refused the subscription, or has ended it.
        """
        while not self._buffer:
            self._is_filled = anyio.Event()
            await self._is_filled.wait()
        if isinstance(first := self._buffer[0], ServerError):
            raise first
        self._buffer.popleft()
        self._is_taken.set()
        return first

    def _put(self, item: EventBatch | ServerError) -> None:
        self._buffer.append(item)
        self._is_filled.set()

    async def _receive_all(self) -> None:
        losses = 0
        while True:
            began = anyio.current_time()
            try:
                with anyio.CancelScope(deadline=began + SILENT_SECONDS) as self._silence:
                    async with self._server.connection_for(self._context) as connection:
                        meta = await self._server.meta_for(self._context)
                        params = {**self._params, "_meta": meta} if meta else self._params
                        await connection.stream("events/stream", params, self._receive)
            except (ServerRefusedError, ServerAnswerError, ServerAuthError) as error:
                self._put(error)
                return
            except WireError as error:
                self._put(ServerAnswerError(self._failure(str(error))))
                return
            except ServerError as error:
                _logger.debug("server %r: a stream of events was lost: %s", self._server.name, error)
            losses = 1 if anyio.current_time() - began >= LASTING_SECONDS else losses + 1
            await anyio.sleep(self._reconnect.delay_seconds(losses))

    async def _receive(self, message: Json) -> None:
        """Handle a notification of the stream, in the task that waits for its end."""
        assert self._silence is not None, "it is open"
        kind, params = message["method"].removeprefix(NOTIFICATIONS), message.get("params") or {}
        self._silence.deadline = float("inf")  # while nobody takes the events
        if kind == "event":
            event = event_from_wire(params, self._name, self._server.name)
            await self._deliver(EventBatch(events=self._ids.new((event,)), cursor=event.cursor))
        elif kind in {"active", "heartbeat"}:
            truncated = kind == "active" and params.get("truncated") is True
            await self._deliver(EventBatch(cursor=cursor_in(params), truncated=truncated))
        elif kind == "terminated":
            error = params.get("error")
            code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
            text = text if isinstance(text, str) else "the subscription has ended"
            data = error.get("data") if isinstance(error, dict) else None
            raise ServerRefusedError(self._failure(text), code if isinstance(code, int) else 0, text, data)
        self._silence.deadline = anyio.current_time() + SILENT_SECONDS

    def _failure(self, reason: str) -> ServerFailure:
        return ServerFailure(server=self._server.name, phase=f"reading events of {self._name!r}", reason=reason)

    async def _deliver(self, batch: EventBatch) -> None:
        while len(self._buffer) >= _BUFFERED_BATCHES:
            self._is_taken = anyio.Event()
            await self._is_taken.wait()
        self._put(batch)
        if batch.cursor is not None:
            self._params = {**self._params, "cursor": batch.cursor}

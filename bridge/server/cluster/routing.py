"""Routing between replicas: the replica that a message is for, and resumption of streams on any replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from bridge.server.cluster.event_store import ID_SEPARATOR, position_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Scope

    from bridge.server.cluster.event_store import SessionEvents, StreamPosition
    from bridge.server.cluster.replica import Replica
    from bridge.types import Json


def replica_in(request_id: object) -> str | None:
    """Return the replica that sent a request to the client, given its id; None for ids of other senders."""
    if not isinstance(request_id, str):
        return None
    replica, separator, _ = request_id.partition(ID_SEPARATOR)
    return replica if separator else None


def target_replica(message: Json) -> str | None:
    """Return the replica that a client's message is for: ``all`` for a cancellation, None for the receiving one."""
    method, params = message.get("method"), message.get("params")
    if method is None:
        return replica_in(message.get("id"))
    if not isinstance(params, dict):
        return None
    if method == "notifications/cancelled":
        return "all"
    return replica_in(params.get("progressToken")) if method == "notifications/progress" else None


def requested_position(scope: Scope) -> StreamPosition | None:
    """Return the position in a call's stream that a request resumes; None if it resumes none."""
    event_id = Headers(scope=scope).get("last-event-id")
    return None if event_id is None else position_of(event_id)


def without_last_event_id(scope: Scope) -> Scope:
    """Copy a scope without ``Last-Event-ID``, since the events of streams that belong to no call are not stored."""
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != b"last-event-id"]}


def resume_stream(
    events: SessionEvents, position: StreamPosition, session_id: str, replica: Replica
) -> StreamingResponse:
    """Return a response that resumes the stream of a call."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for event in events.follow(position):
                yield ": \n\n" if event is None else f"id: {event[0]}\nevent: message\ndata: {event[1]}\n\n"
        except replica.failures as error:
            replica.failed(error)  # the client resumes again

    # The same headers as on the original stream; without X-Accel-Buffering, nginx would delay events.
    headers = {
        "cache-control": "no-cache, no-transform",
        "mcp-session-id": session_id,
        "x-accel-buffering": "no",
    }
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

"""Routing between replicas: which replica a message is for, and streams that are resumed at another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.responses import StreamingResponse

from bridge.server.cluster.event_store import _SIGN, position_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Scope

    from bridge.server.cluster.event_store import SessionEvents, StreamPosition
    from bridge.server.cluster.replica import Replica
    from bridge.types import Json


def replica_in(number: object) -> str | None:
    """Which replica asked under a number; None where it is no number of ours."""
    if not isinstance(number, str):
        return None
    replica, sign, _ = number.partition(_SIGN)
    return replica if sign else None


def target_replica(message: Json) -> str | None:
    """Which replica a message of a client is for: ``all`` where each may be; None where it is for who got it."""
    method, params = message.get("method"), message.get("params")
    if method is None:
        return replica_in(message.get("id"))
    if not isinstance(params, dict):
        return None
    if method == "notifications/cancelled":
        return "all"
    return replica_in(params.get("progressToken")) if method == "notifications/progress" else None


def requested_position(scope: Scope) -> StreamPosition | None:
    """Where in the stream of a call a request wants to go on; None where it is for no call's stream."""
    event_id = Headers(scope=scope).get("last-event-id")
    return None if event_id is None else position_of(event_id)


def without_last_event_id(scope: Scope) -> Scope:
    """A request without the place at which a stream of no call broke off: what was said there is not kept."""
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != b"last-event-id"]}


def resume_stream(events: SessionEvents, place: StreamPosition, session_id: str, link: Replica) -> StreamingResponse:
    """The answer to a client that goes on reading the stream of a call."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for event in events.follow(place):
                yield ": \n\n" if event is None else f"id: {event[0]}\nevent: message\ndata: {event[1]}\n\n"
        except link.failures as error:
            link.failed(error)  # the client resumes again

    # The same as of the stream that broke off: nginx, for one, would keep events back where nobody tells it not to.
    headers = {
        "cache-control": "no-cache, no-transform",
        "mcp-session-id": session_id,
        "x-accel-buffering": "no",
    }
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)

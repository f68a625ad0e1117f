"""Routing between replicas: ids of requests, the replica that a message is for, and resumption of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.shared.dispatcher import CallOptions

    from bridge.server.cluster.event_store import SessionEvents, StreamPosition
    from bridge.server.cluster.replica import Replica
    from bridge.types import Json


_SEPARATOR = "/"
"""Separates the replica from the number in the id of a request to a client."""


class ReplicaDispatcher(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher with ids of requests that are unique among replicas."""

    def __init__(self, replica: str, *streams: Any, **settings: Any) -> None:
        super().__init__(*streams, **settings)
        self._replica = replica
        self._asked = 0

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **related: Any
    ) -> dict[str, Any]:
        """Send a request to the client, with a unique id."""
        self._asked += 1
        numbered: CallOptions = {"request_id": f"{self._replica}{_SEPARATOR}{self._asked}", **(opts or {})}
        return await super().send_raw_request(method, params, numbered, **related)


def _replica_in(request_id: object) -> str | None:
    """Return the replica that sent a request to the client, given its id; None for ids of other senders."""
    if not isinstance(request_id, str) or _SEPARATOR not in request_id:
        return None
    return request_id.partition(_SEPARATOR)[0]


def target_replica(message: Json) -> str | None:
    """Return the replica that a client's message is for: ``all`` for a cancellation, None for the receiving one."""
    method, params = message.get("method"), message.get("params")
    if method is None:
        return _replica_in(message.get("id"))
    if not isinstance(params, dict):
        return None
    if method == "notifications/cancelled":
        return "all"
    return _replica_in(params.get("progressToken")) if method == "notifications/progress" else None


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

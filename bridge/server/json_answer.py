"""A JSON answer over HTTP, sent whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send

CONTENT_TYPE = (b"content-type", b"application/json")
NO_STORE = (b"cache-control", b"no-store")


async def send_json(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), *, is_head: bool = False
) -> None:
    """Answer a request.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        body: The JSON.
        headers: What is said beside its type and its length.
        is_head: Only the head was asked for.
    """
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [CONTENT_TYPE, length, *headers]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


async def send_refusal(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Answer a request that gets no further, which an observer counts.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        body: The JSON.
        headers: What is said beside its type and its length.
    """
    if (observer := switch.observer()) is not None:
        observer.refused(status)
    await send_json(send, status, body, headers)

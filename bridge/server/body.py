"""The body of an HTTP request: read once, within a limit, and handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from starlette.types import Message, Receive


class BodyTooLargeError(BridgeError):
    """A body, whether its length was declared or not, is over the limit."""


class ClientGoneError(BridgeError):
    """The client went away before it had sent the whole body."""


async def read_body(receive: Receive, max_bytes: int, declared_bytes: int | None = None) -> bytes:
    """The whole body.

    Args:
        receive: Where the body comes from.
        max_bytes: How long it may be.
        declared_bytes: How long it says that it is, where it says so.

    Raises:
        BodyTooLargeError: It is longer, or says that it is; nothing more of it was read.
        ClientGoneError: It did not come whole.
    """
    if declared_bytes is not None and declared_bytes > max_bytes:
        raise BodyTooLargeError
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        part: bytes = message.get("body", b"")
        if len(body) + len(part) > max_bytes:
            raise BodyTooLargeError
        body = body + part if body else part
        if not message.get("more_body", False):
            return body


def replaying(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read once more, and then what follows it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay

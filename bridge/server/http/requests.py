"""The body of an HTTP request: read once, within a limit, and handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.server.http.responses import send_error
from bridge.server.protocol import too_many_values, value_bounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    Shortcut = Callable[[Scope, dict[bytes, bytes], bytes, Receive, Send], Awaitable[bool]]

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""How long a request's body may be by default: 4 MiB."""

HEADERS = "bridge.headers"
"""Where a scope has the headers that the edge read: by name, without space around their values."""

STREAM_PATH = "/sse"

MESSAGES_PATH = "/messages/"


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


def replay_body(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read once more, and then what follows it."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


class BodyLimitMiddleware:
    """ASGI middleware behind the edge: reads the body of a POST, within limits, for what may answer it at once.

    Args:
        app: What is behind it.
        max_bytes: How long a body may be.
        shortcut: What may answer a POST before the app sees it.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, shortcut: Shortcut | None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._bounds = value_bounds(max_bytes)
        self._shortcut = shortcut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = scope[HEADERS]
        if scope["method"] != "POST":
            await self._app(_stripped(scope), receive, send)
            return
        length = headers.get(b"content-length", b"")
        try:
            body = await read_body(receive, self._max_bytes, int(length) if length.isdigit() else None)
        except BodyTooLargeError:
            await send_error(send, 413, f"the body is over the limit of {self._max_bytes} bytes")
            return
        except ClientGoneError:
            return
        if (excess := self._bounds.excess(body)) is not None:
            await send_error(send, 413, too_many_values(excess))
            return
        # A header that stands twice is for those to judge who know what it means.
        if (
            self._shortcut is not None
            and len(headers) == len(scope["headers"])
            and await self._shortcut(scope, headers, body, receive, send)
        ):
            return
        await self._app(_stripped(scope), replay_body(body, receive), send)


def _stripped(scope: Scope) -> Scope:
    """A request whose headers have no space around their values."""
    return {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}


def is_message(scope: Scope) -> bool:
    """Whether a request brings a message of SSE."""
    path: str = scope["path"]
    return path.rstrip("/").endswith(MESSAGES_PATH.rstrip("/"))

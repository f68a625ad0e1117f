"""The body of an HTTP request: read once, within a limit, and handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.server.http.responses import send_error
from bridge.server.limits.accounts import caller_key
from bridge.server.limits.shares import Shares
from bridge.server.protocol import LIMIT_EXCEEDED, ProtocolError, too_many_values, value_bounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    Shortcut = Callable[[Scope, dict[bytes, bytes], bytes, Receive, Send], Awaitable[bool]]

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""How long a request's body may be by default: 4 MiB."""

HEADERS = "bridge.headers"
"""Where a scope has the headers that the edge read: by name, without space around their values."""

BODY_BYTES = "bridge.body_bytes"
"""Where a scope has the length of its body."""

MAX_BODY_BYTES_OF_ALL = 256 * 1024 * 1024
"""Maximum length of all bodies that are being read or answered, if that is enough for `_LONGEST_BODIES`."""

_LONGEST_BODIES = 8

UNCOUNTED_BODY_BYTES = 32 * 1024
"""Maximum length of a body that need not be counted, since the number of calls is bounded."""

_RETRY_SECONDS = 1

STREAM_PATH = "/sse"

MESSAGES_PATH = "/messages/"


class BodyTooLargeError(BridgeError):
    """A body, whether its length was declared or not, is over the limit."""


class BodiesTooLargeError(BridgeError):
    """All bodies of a caller, or of all callers, are over the limit."""


class ClientGoneError(BridgeError):
    """The client went away before it had sent the whole body."""


def shares_of_bodies(max_bytes: int) -> Shares:
    """The memory that bodies may take, which callers share; a body may have ``max_bytes``."""
    return Shares(max(MAX_BODY_BYTES_OF_ALL, _LONGEST_BODIES * max_bytes))


def no_room_for_body() -> ProtocolError:
    """The error for a request whose body has no room."""
    told = f"the requests that are being answered are too long altogether; try again in {_RETRY_SECONDS} second"
    return ProtocolError(LIMIT_EXCEEDED, told, {"limit": "--max-request-bytes", "retryAfterSeconds": _RETRY_SECONDS})


async def read_body(
    receive: Receive,
    max_bytes: int,
    declared_bytes: int | None = None,
    take: Callable[[int], bool] = lambda _: True,
) -> bytes:
    """The whole body.

    Args:
        receive: Where the body comes from.
        max_bytes: How long it may be.
        declared_bytes: How long it says that it is, where it says so.
        take: Counts the bytes of each part; returns whether there is room for them.

    Raises:
        BodiesTooLargeError: There is no room for it.
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
        if not take(len(part)):
            raise BodiesTooLargeError
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
        bodies: The memory that callers share.
        shortcut: What may answer a POST before the app sees it.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, bodies: Shares, shortcut: Shortcut | None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._bounds = value_bounds(max_bytes)
        self._bodies = bodies
        self._shortcut = shortcut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(_stripped(scope), receive, send)
            return
        with self._bodies.growing(caller_key(scope)) as take:
            await self._post(scope, receive, send, take)

    async def _post(self, scope: Scope, receive: Receive, send: Send, take: Callable[[int], bool]) -> None:
        headers: dict[bytes, bytes] = scope[HEADERS]
        length = headers.get(b"content-length", b"")
        try:
            body = await read_body(receive, self._max_bytes, int(length) if length.isdigit() else None, take)
        except BodyTooLargeError:
            await send_error(send, 413, f"the body is over the limit of {self._max_bytes} bytes")
            return
        except BodiesTooLargeError:
            error = no_room_for_body()
            await send_error(
                send, 429, error.message, error.code, limit="--max-request-bytes", retry_after_seconds=_RETRY_SECONDS
            )
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
        await self._app({**_stripped(scope), BODY_BYTES: len(body)}, replay_body(body, receive), send)


def _stripped(scope: Scope) -> Scope:
    """A request whose headers have no space around their values."""
    return {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}


def is_message(scope: Scope) -> bool:
    """Whether a request brings a message of SSE."""
    path: str = scope["path"]
    return path.rstrip("/").endswith(MESSAGES_PATH.rstrip("/"))

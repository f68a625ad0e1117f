"""JSON responses and JSON-RPC errors over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError
from bridge.protocol.messages import ProtocolError, answer
from bridge.protocol.versions import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from bridge.telemetry import current

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Send

    from bridge.protocol.messages import MessageId

Header = tuple[bytes, bytes]
CONTENT_TYPE: Header = (b"content-type", b"application/json")
JSON_HEADERS: tuple[Header, ...] = (CONTENT_TYPE,)
HTTP_STATUS = {
    METHOD_NOT_FOUND: 404,
    INVALID_PARAMS: 400,
    INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""HTTP status of errors by code, in the modern era; all others have 200."""
NO_STORE = (b"cache-control", b"no-store")


async def send_error(
    send: Send,
    status: int,
    message: str,
    code: int = INVALID_REQUEST,
    *,
    retry_after_seconds: int | None = None,
    limit: str | None = None,
) -> None:
    """Answer with an HTTP status and a JSON-RPC error without an id.

    Args:
        send: Sends the response.
        status: HTTP status.
        message: Message of the error.
        code: Code of the error.
        retry_after_seconds: Seconds after which the client may try again; None if it should not.
        limit: Name of the limit that was reached, if any.
    """
    found = {"limit": limit, "retryAfterSeconds": retry_after_seconds}
    data = {key: value for key, value in found.items() if value is not None}
    headers = () if retry_after_seconds is None else ((b"retry-after", b"%d" % retry_after_seconds),)
    await send_response(send, error_response(ProtocolError(code, message, data or None), status, headers=headers))


@dataclass(slots=True)
class Response:
    """The complete response to a message, or the rest of one that has begun."""

    body: bytes
    status: int = 200
    headers: tuple[Header, ...] = JSON_HEADERS
    is_rest: bool = False
    """True for the rest of a response that has begun; it would be broken off by any other."""


class RefusedError(BridgeError):
    """A request is refused.

    Attributes:
        response: The response.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(str(response.status))
        self.response = response


def refused(message: str, status: int = 400, *, headers: tuple[Header, ...] = ()) -> RefusedError:
    """Return the refusal of a request that is not valid, as a JSON-RPC error without an id."""
    return RefusedError(error_response(ProtocolError(INVALID_REQUEST, message), status, headers=headers))


def error_response(
    error: ProtocolError, status: int = 400, *, message_id: MessageId | None = None, headers: tuple[Header, ...] = ()
) -> Response:
    """Return a response with a JSON-RPC error; one to no request counts as a refusal in the metrics.

    Args:
        error: The error.
        status: HTTP status.
        message_id: Id of the request; None if it is not known.
        headers: Further headers.
    """
    if message_id is None:
        return refusal_response(refusal(error), status, headers)
    return Response(answer(message_id, error), status, (*JSON_HEADERS, *headers))


def refusal_response(body: bytes, status: int, headers: Iterable[Header] = ()) -> Response:
    """Return a response with JSON to a request that is refused, which counts in the metrics."""
    if (observer := current.observer()) is not None:
        observer.refused(status, body)
    return Response(body, status, (*JSON_HEADERS, *headers))


def refusal(error: ProtocolError) -> bytes:
    """Return a JSON-RPC error without an id."""
    wire: dict[str, Any] = {"code": error.code, "message": error.message}
    return json.dumps(
        {"jsonrpc": "2.0", "id": None, "error": wire if error.data is None else wire | {"data": error.data}}
    ).encode()


class AsgiBody:
    """Body of a response that is sent in parts through ASGI: a `bridge.server.http.streams.StreamBody`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._headers: tuple[Header, ...] | None = None
        self._is_started = False
        self.is_open = True
        """True until the response is complete, or the client has disconnected."""

    @property
    def has_begun(self) -> bool:
        """True once the response has begun."""
        return self._headers is not None

    def begin(self, headers: tuple[Header, ...]) -> bool:
        """Begin the response, whose head is sent with the first part."""
        if self._headers is not None:
            return False
        self._headers = headers
        return True

    async def write(self, part: bytes) -> None:
        """Send a part; the server waits while the client does not read."""
        if self.is_open:
            await self._send_part(part, more_body=True)

    async def end(self, part: bytes = b"") -> None:
        """Send the last part."""
        if self.is_open:
            self.is_open = False
            await self._send_part(part, more_body=False)

    async def _send_part(self, part: bytes, *, more_body: bool) -> None:
        try:
            if not self._is_started:
                self._is_started = True
                await self._send({"type": "http.response.start", "status": 200, "headers": list(self._headers or ())})
            await self._send({"type": "http.response.body", "body": part, "more_body": more_body})
        except OSError:  # the client has disconnected, as some servers say
            self.is_open = False


async def send_response(send: Send, response: Response, *, is_head: bool = False) -> None:
    """Send a complete response; without its body to a HEAD request."""
    headers = [*response.headers, (b"content-length", b"%d" % len(response.body))]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else response.body})

"""JSON responses and JSON-RPC errors over HTTP.

Refusals: HTTP answers to requests that get no further, with a JSON-RPC error as their body.

A JSON answer over HTTP, sent whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bridge.server.protocol import INVALID_REQUEST, PARSE_ERROR
from bridge.telemetry import switch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import Scope, Send

MAX_ID_CHARS = 1024
"""Maximum length of a request's id in a session."""

CONTENT_TYPE = (b"content-type", b"application/json")

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
    """Answer with an HTTP status and a JSON-RPC error that belongs to no request.

    Args:
        send: Where the answer goes.
        status: The HTTP status.
        message: What is wrong, for the client.
        code: The error's code.
        retry_after_seconds: When trying again may help; None where it will not.
        limit: Which limit was reached, if it was one.
    """
    data = {"limit": limit, "retryAfterSeconds": retry_after_seconds}
    told = {key: value for key, value in data.items() if value is not None}
    error: dict[str, Any] = {"code": code, "message": message} | ({"data": told} if told else {})
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [] if retry_after_seconds is None else [(b"retry-after", b"%d" % retry_after_seconds)]
    await send_counted_error(send, status, body, headers)


async def require_json(scope: Scope, send: Send) -> Scope | None:
    """A request whose body says that it is JSON, as the SDK reads it: in lower case.

    One that does not is answered 415, and is None.
    """
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    said = [kind.split(b";")[0].strip() for kind in kinds]
    if said == [CONTENT_TYPE[1]]:
        return scope
    if [kind.lower() for kind in said] != [CONTENT_TYPE[1]]:
        await send_error(send, 415, "the content type of a message is application/json")
        return None
    others = [header for header in scope["headers"] if header[0] != b"content-type"]
    return {**scope, "headers": [*others, CONTENT_TYPE]}


def is_utf8(body: bytes) -> bool:
    """Whether JSON is in UTF-8, as messages are (MCP, "Transports").

    The SDK reads UTF-16, UTF-32 and byte order marks in the modern era, and in the handshake era it does not. JSON in
    UTF-8 begins with no such mark, and none of its bytes is zero.
    """
    return body[:1] < b"\x80" and b"\0" not in body[:4]


def message_problem(body: bytes) -> tuple[int, str] | None:
    """What keeps a body from being one JSON-RPC message of the handshake era, as code and message; None for nothing.

    The SDK calls a batch malformed parameters, takes a request whose id is no id for a notification, and logs what it
    cannot read over SSE as its own failure.
    """
    from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - only what serves the SDK needs it
    from pydantic import ValidationError  # noqa: PLC0415
    from pydantic_core import from_json  # noqa: PLC0415

    try:
        message: Any = from_json(body)
    except ValueError:
        return PARSE_ERROR, "the body is not JSON in UTF-8"
    if not isinstance(message, dict):
        return INVALID_REQUEST, "the body is not one JSON-RPC message; batches are not supported"
    if "id" in message and "method" in message and type(message["id"]) not in {int, str}:
        return INVALID_REQUEST, "the id of a request is text or an integer"
    if "method" in message and len(str(message.get("id"))) > MAX_ID_CHARS:  # events repeat it, and Redis keeps it
        return INVALID_REQUEST, f"the id of a request has at most {MAX_ID_CHARS} characters"
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError:
        return INVALID_REQUEST, "the body is not a JSON-RPC 2.0 message"
    return None


@dataclass(slots=True)
class PlainResponse:
    """The whole answer to a request; nobody changes it."""

    body: bytes
    status: int = 200
    session_id: str | None = None
    """The session that it is given in; None in the modern era."""


class PendingCall(Protocol):
    """A call that was proven plain, and is still to be run."""

    ends_with_client: bool
    """Whether it is cancelled when the client closes the request."""

    async def run(self) -> PlainResponse:
        """Run it, once; never raises but to be cancelled."""
        ...


class PlainHandler(Protocol):
    """What begins with a POST that came whole."""

    def begin(self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes) -> PlainResponse | PendingCall | None:
        """As `FastHttp.begin`."""
        ...


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


async def send_counted_error(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
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

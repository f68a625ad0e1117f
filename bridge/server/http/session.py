"""Requests of sessions of the handshake era over HTTP: what a session keeps of them, and those of this server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Scope

SESSION = "bridge.session"
"""Key of an ASGI scope that holds its `Session`."""
MAX_KEPT_BYTES = 256 * 1024
"""Maximum memory of the client's own data in a session, as `kept_bytes` estimates it."""
_BYTES_OF_A_VALUE = 256
"""Maximum memory of one JSON value, beside its text, in all forms in which it is kept."""
BYTES_OF_A_RESPONSE = 2 * 1024
"""Memory of a response that waits to be sent, beside its text."""
KEPT_METHODS = frozenset({"initialize", "notifications/initialized"})
"""Messages that a session keeps for as long as it is open."""


class UnreadResponses:
    """Responses of one session that wait to be sent, by their requests' ids as text; clients may reuse ids."""

    def __init__(self) -> None:
        self._owed: dict[str, list[object]] = {}
        self._written: dict[str, list[object]] = {}

    def add(self, request: str) -> object:
        """Add a response that its handler writes next; return its key."""
        response = object()
        self._owed.setdefault(request, []).append(response)
        return response

    def wrote(self, request: str, *, waits: bool) -> list[object]:
        """Note that a response was written; return those that wait no longer.

        Args:
            request: The id of its request.
            waits: True if it waits until the request's POST is closed.
        """
        if not (owed := self._owed.pop(request, [])):
            return []
        first, *others = owed
        if others:
            self._owed[request] = others
        if not waits:
            return [first]
        self._written.setdefault(request, []).append(first)
        return []

    def closed(self, request: str) -> list[object]:
        """Note that the POST of a request is closed; return the responses that wait no longer."""
        return self._written.pop(request, [])


def kept_bytes(body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """Estimate an upper bound of the memory of a message that is parsed and kept, and of the headers of its request."""
    values = sum(body.count(each) for each in b",{[")
    return 2 * len(body) + _BYTES_OF_A_VALUE * values + sum(len(name) + len(value) for name, value in headers)


def client_data_problem(kept: int) -> str:
    """Return the error message for a client whose own data exceeds `MAX_KEPT_BYTES`."""
    return (
        f"the session would keep {kept} bytes of data about its client, and may keep {MAX_KEPT_BYTES}: "
        "send less in 'capabilities' and 'clientInfo'"
    )


def without_header(scope: Scope, name: bytes) -> Scope:
    """Copy a scope without a header."""
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != name]}


async def request_in_session(
    app: ASGIApp, method: str, session_id: str, body: bytes = b"", *, user: object = None
) -> None:
    """Send a request of this server to a session of the SDK; the response is dropped."""
    headers = [
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-session-id", session_id.encode()),
    ]
    scope: Scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": headers}
    if user is not None:
        scope["user"] = user

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def drop(_: Message) -> None:
        pass

    await app(scope, receive, drop)

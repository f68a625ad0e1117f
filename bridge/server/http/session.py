"""A session of the handshake era over HTTP: its calls, its unread responses, and its memory."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import from_json
from starlette.datastructures import Headers

from bridge.server.http.requests import no_room_for_body
from bridge.server.protocol import HANDSHAKE_VERSIONS
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from starlette.types import ASGIApp, Message, Scope, Send

    from bridge.server.limits.shares import Shares

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


class SessionAccounts(Protocol):
    """Counts the memory of sessions: data of their clients, and responses that wait to be sent."""

    bodies: Shares
    """The memory that callers share for the requests that are being answered."""

    def keep(self, session: Session, kept: int) -> bool:
        """Count bytes that a session keeps of its client; return False if they exceed a limit."""
        ...

    def answered(self, session: Session, handler: object, answer: object) -> None:
        """Count the response of a handler, given its task and its result; the result of an error is None."""

    def sent(self, session: Session, handler: object) -> None:
        """Stop counting the response of a handler."""


@dataclass(slots=True, eq=False)
class Session:
    """One session. Enter it (``with session: …``) while a request of it is answered, or a call of it runs."""

    id: str
    """Value of ``Mcp-Session-Id``."""
    user: object
    """The user that authentication put into the scope of its first request; None without authentication."""
    capabilities: Mapping[str, Any]
    """Capabilities that the client declared, in MCP's JSON."""
    owner: str = ""
    """Key of the caller that opened it."""
    version: str | None = None
    """The negotiated protocol version; None before ``initialize`` has been answered, and if it failed."""
    running: dict[str, Callable[[], object]] = field(default_factory=dict)
    """Functions that cancel calls of the fast path, by the request's id as text, since 7 and "7" are the same id.

    A call that the fast path has handed over stays here until it ends.
    """
    asked: dict[str, bool] = field(default_factory=dict)
    """Ids, as text, of the requests that the SDK has not handled yet; True once a handler has begun."""
    kept: int = 0
    """Bytes of data about its client, as `kept_bytes` estimates them."""
    streams: int = 0
    """Number of its open streams that belong to no call."""
    end: Callable[[], object] | None = None
    """Ends it at once; None for a session of streamable HTTP, which its endpoint ends."""
    sessions: SessionAccounts | None = None
    """Counts its memory."""
    unread: dict[object, int] = field(default_factory=dict)
    """Length of each response that waits to be sent, by its handler's task, since clients may reuse ids."""
    unread_bytes: int = 0
    posts: set[str] = field(default_factory=set)
    """Ids, as text, of the JSON-RPC requests whose POST is open."""
    written: dict[str, list[object]] = field(default_factory=dict)
    """Handlers that have passed their response to the open POST, by the ids of `posts`."""
    requests: int = 0
    """Number of requests that are being answered, open streams included, and of calls that run in the SDK."""
    opened_at: float = field(init=False)
    unused_since: float = field(init=False)

    def __post_init__(self) -> None:
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

    def id_problem(self, request: object) -> str | None:
        """Return the error message for a further request with an id that is in use; None for another id."""
        if (key := str(request)) not in self.running and key not in self.asked:
            return None
        return f"a request of this session with the id {clip(repr(request))} still runs; give each request its own id"

    @contextmanager
    def posting(self, request: object) -> Iterator[None]:
        """Context in which the SDK handles the POST of a request; the request's id is in use meanwhile."""
        key = str(request)
        self.asked[key] = False
        self.posts.add(key)
        try:
            with self:
                yield
        finally:
            self.posts.discard(key)
            if self.asked.get(key) is False:  # refused before a handler began
                del self.asked[key]
            for handler in self.written.pop(key, ()):
                self._sent(handler)

    @contextmanager
    def handling(self, request: object, body_bytes: int = 0) -> Iterator[None]:
        """Context in which a handler runs, even after its client has disconnected, and its body counts.

        Raises:
            ProtocolError: The body exceeds the shared memory.
        """
        bodies = None if self.sessions is None else self.sessions.bodies
        if bodies is not None and not bodies.has_room(self.owner, body_bytes):
            raise no_room_for_body()
        key = str(request)
        self.asked[key] = True
        try:
            with nullcontext() if bodies is None else bodies.taking(self.owner, body_bytes):
                yield
        finally:
            self.asked.pop(key, None)

    def owe(self, request: object, answer: object) -> None:
        """Count a response, or None for an error. Call it in the handler's task, which writes the response next.

        The response counts until it is written, and over streamable HTTP until its POST is closed.
        """
        if self.sessions is None:
            return
        handler = asyncio.current_task()
        assert handler is not None
        self.sessions.answered(self, handler, answer)
        handler.add_done_callback(partial(self._written, str(request)))

    def _written(self, request: str, handler: object) -> None:
        if request in self.posts:
            self.written.setdefault(request, []).append(handler)
        else:
            self._sent(handler)

    def _sent(self, handler: object) -> None:
        if self.sessions is not None:
            self.sessions.sent(self, handler)

    def use(self) -> None:
        """Note that a request of the session was answered."""
        self.unused_since = monotonic()

    def cancel(self, request: object) -> None:
        """Cancel the call of the fast path with an id, if there is one, once; it keeps its id until it has ended."""
        end = self.running.get(str(request)) if type(request) in {int, str} else None
        if end is not None:
            self.running[str(request)] = _ended
            end()


def _ended() -> None:
    """Cancel a call that was cancelled before."""


def same_credential(scope: Scope, session: Session) -> bool:
    """True if a request carries the credential that opened a session, as the SDK compares them."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    from mcp.server.auth.middleware.bearer_auth import (  # noqa: PLC0415 - needed only with credentials
        AuthenticatedUser,
        authorization_context,
    )

    contexts = [
        authorization_context(each) if isinstance(each, AuthenticatedUser) else None for each in (user, session.user)
    ]
    return contexts[0] == contexts[1]


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


def initialize_response(
    send: Send, opened: Callable[[str], Session], established: Callable[[Session], Awaitable[None]] | None
) -> Send:
    """Return an ASGI ``send`` that reads the session's id and version from the response to ``initialize``.

    Args:
        send: Sends the response.
        opened: Called with the session's id; returns the session, whose version is set.
        established: Awaited once the version is set, before it is sent.
    """
    session: Session | None = None
    body = b""

    async def read_and_send(message: Message) -> None:
        nonlocal session, body
        if message["type"] == "http.response.start":
            session_id = Headers(raw=message["headers"]).get("mcp-session-id")
            if message["status"] == HTTPStatus.OK and session_id is not None:
                session = opened(session_id)
        elif session is not None and session.version is None:
            body += message.get("body", b"")
            session.version = _version_in(body)
            if session.version is not None and established is not None:
                await established(session)
        await send(message)

    return read_and_send


def _version_in(body: bytes) -> str | None:
    # The response is one message, as JSON or as the only data line of a server-sent event.
    for line in body.splitlines():
        try:
            version = from_json(line.removeprefix(b"data: "))["result"]["protocolVersion"]
        except (ValueError, KeyError, TypeError):
            continue
        return version if version in HANDSHAKE_VERSIONS else None
    return None

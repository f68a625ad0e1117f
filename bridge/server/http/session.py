"""A session of the handshake era: its calls, its unread answers, and the memory that it may take."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from pydantic_core import from_json
from starlette.datastructures import Headers

from bridge.server.http.requests import no_room_for_body
from bridge.server.protocol import HANDSHAKE_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from starlette.types import Message, Scope, Send

    from bridge.server.limits.shares import Shares

SESSION = "bridge.session"
"""Where a request's scope has its `Session`."""

MAX_KEPT_BYTES = 256 * 1024
"""Maximum memory of what a client says of itself and its session keeps, as `kept_bytes` estimates it."""

_BYTES_OF_A_VALUE = 256
"""Memory that one value of JSON takes at most, beside its text, in all forms in which it is kept."""

_BYTES_OF_AN_ANSWER = 2 * 1024
"""Memory that an answer takes that waits to be sent, beside its text."""

KEPT_METHODS = frozenset({"initialize", "notifications/initialized"})
"""Messages that a session keeps for as long as it is open."""


def kept_bytes(body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """Estimate, from above, the memory that a message takes once it is parsed and kept.

    Args:
        body: The message as it came.
        headers: Those of the request that brought it, where they are kept, too.
    """
    values = sum(body.count(each) for each in b",{[")
    return 2 * len(body) + _BYTES_OF_A_VALUE * values + sum(len(name) + len(value) for name, value in headers)


def told_too_much(kept: int) -> str:
    """The message for a client that says more of itself than its session may keep."""
    return (
        f"what a session keeps of its client takes {kept} bytes here, and may take {MAX_KEPT_BYTES}: "
        "send less in 'capabilities' and 'clientInfo'"
    )


class SessionAccounts(Protocol):
    """Counts the memory that sessions take: what they keep of their clients, and answers that wait to be sent."""

    bodies: Shares
    """The memory that callers share for the requests that are being answered."""

    def keep(self, session: Session, kept: int) -> bool:
        """Count bytes that a session keeps of its client; returns whether it may keep them."""
        ...

    def answered(self, session: Session, handler: object, answer: object) -> None:
        """Count the answer of a handler, which is its task; None for an error."""

    def sent(self, session: Session, handler: object) -> None:
        """Count the answer of a handler no more."""


class Session:
    """One session. It is entered while a request of it is answered, and while a call of it runs: ``with session: …``.

    Attributes:
        id: What the client sends in ``Mcp-Session-Id``.
        version: The revision of the protocol that was agreed on; None where that is not known, as before the answer to
            ``initialize`` has passed, and where that is an error.
        user: Who opened it, as the transport's authentication put it into the request; None where nobody asked.
        capabilities: What the client declared, in MCP's JSON.
        running: What ends each of the calls that run beside the SDK, by the request's id as text: ``7`` and ``"7"`` are
            one, as for the SDK.
        asked: Ids, as text, of the requests that the SDK has got and not handled yet; true once a handler has begun.
        opened_at: When it was opened, by `time.monotonic`.
        owner: Which of the callers opened it.
        kept: How much memory it keeps of what its client said of itself, as `kept_bytes` estimates it.
        streams: Number of its streams that are open and belong to no call.
        end: Ends it at once; None for one of streamable HTTP, which its endpoint ends.
    """

    __slots__ = (
        "asked",
        "capabilities",
        "end",
        "id",
        "kept",
        "opened_at",
        "owner",
        "posts",
        "requests",
        "running",
        "sessions",
        "streams",
        "unread",
        "unread_bytes",
        "unused_since",
        "user",
        "version",
        "written",
    )

    def __init__(self, session_id: str, user: object, capabilities: Mapping[str, Any], owner: str = "") -> None:
        self.id = session_id
        self.owner = owner
        self.version: str | None = None
        self.user = user
        self.capabilities = capabilities
        self.running: dict[str, Callable[[], object]] = {}
        self.asked: dict[str, bool] = {}
        self.kept = 0
        self.streams = 0
        self.end: Callable[[], object] | None = None
        self.sessions: SessionAccounts | None = None
        """Counts its memory."""
        self.unread: dict[object, int] = {}
        """Length of the answers that wait to be sent, by the tasks of their handlers: a client may use an id again."""
        self.unread_bytes = 0
        self.posts: set[str] = set()
        """Ids, as text, of the requests whose answers are waited for by requests over HTTP."""
        self.written: dict[str, list[object]] = {}
        """Handlers whose answers are with the requests over HTTP that wait for them, by the ids of `posts`."""
        self.requests = 0
        """How many requests are being answered, open streams included, and how many calls run in the SDK."""
        self.opened_at = self.unused_since = monotonic()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        self.unused_since = monotonic()

    @contextmanager
    def posting(self, request: object) -> Iterator[None]:
        """The time during which the SDK has the request of an id, which is in use until it is handled."""
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
        """The time during which a handler runs, whether anybody waits for its answer or not.

        Args:
            request: The request's id.
            body_bytes: Bytes for which the body counts that brought it, of which the handler has the arguments.

        Raises:
            ProtocolError: There is no room for them.
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
        """Note the answer to the request of an id, None for an error, in the task that writes it next.

        It counts until it is written, and over streamable HTTP also while a request over HTTP waits for it.
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
        """A request of it was answered at once."""
        self.unused_since = monotonic()

    def cancel(self, request: object) -> None:
        """End a call that runs beside the SDK, if there is one of that id."""
        end = self.running.pop(str(request), None) if type(request) in {int, str} else None
        if end is not None:
            end()


def same_credential(scope: Scope, session: Session) -> bool:
    """Whether a request carries the credential that opened a session, as the SDK compares them."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    from mcp.server.auth.middleware.bearer_auth import (  # noqa: PLC0415 - needed only where there are credentials
        AuthenticatedUser,
        authorization_context,
    )

    contexts = [
        authorization_context(each) if isinstance(each, AuthenticatedUser) else None for each in (user, session.user)
    ]
    return contexts[0] == contexts[1]


class InitializeResponse:
    """The answer to ``initialize`` on its way to the client: what it says of the session that it opens.

    Args:
        send: Where it goes.
        opened: Called, before the client can know, with the session's id; gives the session, which gets its version.
    """

    def __init__(self, send: Send, opened: Callable[[str], Session]) -> None:
        self._send = send
        self._opened = opened
        self._session: Session | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        """Let a part of the answer through."""
        if message["type"] == "http.response.start":
            session_id = Headers(raw=message["headers"]).get("mcp-session-id")
            if message["status"] == HTTPStatus.OK and session_id is not None:
                self._session = self._opened(session_id)
        elif self._session is not None:
            self._body += message.get("body", b"")
            if (version := self._version()) is not None:
                self._session.version = version
                self._session = None
        await self._send(message)

    def _version(self) -> str | None:
        # One message, as server-sent events or as JSON: the events' only line of data, or the whole.
        for line in self._body.splitlines():
            try:
                version = from_json(line.removeprefix(b"data: "))["result"]["protocolVersion"]
            except (ValueError, KeyError, TypeError):
                continue
            return version if version in HANDSHAKE_VERSIONS else None
        return None

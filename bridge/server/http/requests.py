"""HTTP requests: a value that is parsed once, and the body, read once within a limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import BridgeError
from bridge.protocol.messages import (
    BOUNDED_BYTES,
    ProtocolError,
    is_call,
    is_response,
    too_many_values,
    value_bounds,
)
from bridge.protocol.versions import INVALID_REQUEST, LIMIT_EXCEEDED, PARSE_ERROR
from bridge.server.auth.access import EVERYTHING
from bridge.server.auth.identity import current_user
from bridge.server.http.decoded_headers import DecodedHeaders
from bridge.server.http.responses import send_error
from bridge.server.limits.accounts import caller_key, current_account
from bridge.server.limits.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from contextlib import ExitStack
    from contextvars import Token

    from starlette.types import Message, Receive, Scope, Send

    from bridge.server.auth.credentials import CachedCredential, RequestUser
    from bridge.server.auth.identity import User
    from bridge.server.http.repeated_bodies import RepeatedBody
    from bridge.server.http.routing import Routing
    from bridge.server.limits.account import Account
    from bridge.server.limits.accounts import Usage
    from bridge.tools.caller import Caller

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Default maximum length of a request's body: 4 MiB."""
MAX_ID_CHARS = 1024
_MAX_ID_BITS = MAX_ID_CHARS * 10 // 3
"""Bits of an integer of as many digits."""
"""Maximum length of a request's id in a session."""
MAX_BODY_BYTES_OF_ALL = 256 * 1024 * 1024
"""Maximum bytes of all bodies that are being read or answered, or more, so that `_MIN_LARGEST_BODIES` fit."""

_MIN_LARGEST_BODIES = 8

UNCOUNTED_BODY_BYTES = 32 * 1024
"""Maximum bytes of a body that is not counted, since the number of calls is bounded."""

_RETRY_SECONDS = 1

REQUEST = "bridge.request"
"""Key of an ASGI scope that holds its `Request`."""
NOT_JSON = object()
"""`Request.message` of a body that is not JSON in UTF-8."""

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
_SPACE = b" \t"
_TRIED_BODIES = 4
_NOT_PARSED = object()


class BodyTooLargeError(BridgeError):
    """A body is over the limit, by its declared or by its actual length."""


class BodiesTooLargeError(BridgeError):
    """The bodies of one caller, or of all callers together, are over the limit."""


class ClientGoneError(BridgeError):
    """The client disconnected before it had sent the whole body."""


class Head:
    """The head of a request, and what is derived from it once, though many requests may have the same head.

    Args:
        scope: The ASGI scope of the request; changed for no request.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        # One of uvicorn's two parsers keeps white space around values, and the SDK would refuse the request.
        self.headers: Mapping[bytes, bytes] = {name: value.strip(_SPACE) for name, value in scope["headers"]}
        """Headers by name, without white space around their values; of a repeated header the last one."""
        self.has_repeated_headers = len(self.headers) < len(scope["headers"])
        self.account = caller_key(scope)
        """Account of a caller without credential."""
        self.endpoint: Any = None
        """The `bridge.server.http.guards.MessageEndpoint` of its path; set by `PreAsgiHandler`."""
        self.is_admitted = False
        """True once the guards that depend on the head alone have admitted it; set by `PreAsgiHandler`."""
        self.credential_key: bytes | None = None
        """Key of the credential in a cache; set by `BearerAuthGuard`."""
        self.routing: Routing | None = None
        """Set by `Endpoint`."""
        self.repeated_body: RepeatedBody | None = None
        """A body of earlier requests with this head; set by `Endpoint`."""
        self.untried_bodies = _TRIED_BODIES
        """Number of further bodies that may become `repeated_body`."""


class Request:
    """An HTTP request, parsed once for all guards and transports: a `bridge.server.exchange.Origin`.

    Args:
        head: Its head.
        body: The body, if it has been read.
    """

    receive: Receive
    """Receives the body, even after a guard has read it. Set in ASGI only, like `send` and `exits`."""
    send: Send
    """Sends the response; a guard may replace it, to add headers."""
    exits: ExitStack
    """Exit stack of the request, for guards."""
    transport = "http"
    """The transport, for telemetry: ``http`` or ``sse``."""
    counted_bytes = 0
    """Bytes for which the body counts in the memory that callers share, as `BodyLimitGuard` counts them."""
    user: RequestUser | None = None
    """The verified caller; None if no credential is required."""
    access = EVERYTHING
    """Permissions of the caller."""
    usage: Usage | None = None
    """Usage of the caller's account; None without limits."""
    is_for_route = False
    """True if a route of the server's own answers it."""
    needs_credential = True
    """False if that route admits everyone."""
    _message: Any = _NOT_PARSED

    def __init__(self, head: Head, body: bytes = b"") -> None:
        self.head = head
        self.scope = head.scope
        """The ASGI scope."""
        self.headers = head.headers
        """As in the head."""
        self.account = head.account
        """Account of the caller, as `caller_key`."""
        self.body = body
        """The body; empty until `BodyLimitGuard` has read it."""

    @property
    def message(self) -> Any:
        """The JSON value in the body, parsed on first use; `NOT_JSON` if it is none."""
        if self._message is _NOT_PARSED:
            try:
                self._message = from_json(self.body)
            except ValueError:
                self._message = _read_leniently(self.body)
        return self._message

    @property
    def caller(self) -> Caller | None:
        """The authenticated caller; None without authentication."""
        return None if self.user is None else self.user.caller

    @property
    def texts(self) -> Mapping[str, str]:
        """The headers as texts, decoded when they are read."""
        return DecodedHeaders(self.headers)

    @property
    def in_context(self) -> Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None:
        """Runs a coroutine with its user and its account as the current ones; None without them."""
        return None if self.user is None and self.usage is None else self._run_in_context

    async def _run_in_context(self, work: Coroutine[Any, Any, Any]) -> Any:
        with RequestContext(self):
            return await work

    def end_usage(self) -> None:
        """Count the request as answered, if it is counted."""
        if self.usage is not None:
            self.usage.end()

    def identify(self, credential: CachedCredential) -> None:
        """Set the verified caller, also in the scope, for other ASGI apps."""
        self.user, self.account, self.access = credential.user, credential.user.caller.name, credential.user.access
        self.scope = {**self.scope, "user": credential.user, "auth": credential.credentials}

    def forget_caller(self) -> None:
        """Undo what guards have found out about the caller, before they are called again."""
        self.scope, self.account, self.access = self.head.scope, self.head.account, EVERYTHING
        self.user = self.usage = None

    def replace_body(self, body: bytes) -> None:
        """Set the body that was received through ASGI, and replay it to further receivers."""
        if body != self.body:
            self.body, self._message = body, _NOT_PARSED
        self.receive = replay_body(body, self.receive)


class RequestContext:
    """Makes the user and the account of a request the current ones."""

    __slots__ = ("_account", "_request", "_user")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._user: Token[User | None] | None = None
        self._account: Token[Account | None] | None = None

    def __enter__(self) -> None:
        user, usage = self._request.user, self._request.usage
        if user is not None:
            self._user = current_user.set(user)
        if usage is not None:
            self._account = current_account.set(usage.account)

    def __exit__(self, *_: object) -> None:
        if self._user is not None:
            current_user.reset(self._user)
        if self._account is not None:
            current_account.reset(self._account)


def shares_of_bodies(max_bytes: int) -> Shares:
    """Return the memory for bodies of at most ``max_bytes`` each, which callers share."""
    return Shares(max(MAX_BODY_BYTES_OF_ALL, _MIN_LARGEST_BODIES * max_bytes))


def no_room_for_body() -> ProtocolError:
    """Return the error for a request whose body exceeds the shared memory."""
    message = f"the requests that are being answered are too long altogether; try again in {_RETRY_SECONDS} second"
    return ProtocolError(LIMIT_EXCEEDED, message, {"limit": "--max-request-bytes", "retryAfterSeconds": _RETRY_SECONDS})


async def read_body(
    receive: Receive,
    max_bytes: int,
    declared_bytes: int | None = None,
    take: Callable[[int], bool] = lambda _: True,
) -> bytes:
    """Read a complete body.

    Args:
        receive: Receives the parts of the body.
        max_bytes: Maximum length of the body.
        declared_bytes: Length in the request's headers; None if it has none.
        take: Counts the bytes of each part; returns False if they exceed the shared memory.

    Raises:
        BodiesTooLargeError: The body exceeds the shared memory.
        BodyTooLargeError: The body, or its declared length, is over ``max_bytes``; the rest was not read.
        ClientGoneError: The client disconnected before the end of the body.
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
    """Replay a body that was already read, then forward ``receive()``."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _read_leniently(body: bytes) -> Any:
    """Read JSON that `from_json` refuses: lone surrogates, and values that are nested more deeply."""
    # JSON in UTF-8 does not begin with a mark, and contains no zero byte.
    if not (body[:1] < b"\x80" and b"\0" not in body[:4]):
        return NOT_JSON
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        return NOT_JSON


def message_problem(message: Any) -> ProtocolError | None:
    """Check that a body is one JSON-RPC message; return the error if it is not.

    Args:
        message: As `Request.message`.
    """
    if is_call(message):
        id_ = message.get("id", 0)
        if len(id_) <= MAX_ID_CHARS if type(id_) is str else id_.bit_length() <= _MAX_ID_BITS:
            return None
        # Events repeat it, and Redis stores it.
        return ProtocolError(INVALID_REQUEST, f"the id of a request has at most {MAX_ID_CHARS} characters")
    if is_response(message):
        return None
    if message is NOT_JSON:
        return ProtocolError(PARSE_ERROR, "the body is not JSON in UTF-8")
    if not isinstance(message, dict):
        problem = "the body is not one JSON-RPC message; batches are not supported"
    elif "id" in message and "method" in message and type(message["id"]) not in {int, str}:
        problem = "the id of a request is text or an integer"
    else:
        problem = "the body is not a JSON-RPC 2.0 message"
    return ProtocolError(INVALID_REQUEST, problem)


class BodyLimitGuard:
    """Guard that reads the body of a POST or for a route, and refuses one of too many bytes or values with 413.

    A body counts for its length or, if that is more, for a tenth of the memory that its values may take, in the memory
    that callers share.

    Args:
        max_bytes: Maximum length of a body.
        bodies: The memory that callers share.
    """

    def __init__(self, max_bytes: int, bodies: Shares) -> None:
        self._max_bytes = max_bytes
        self._max_uncounted_bytes = min(max_bytes, UNCOUNTED_BODY_BYTES)
        self._bodies = bodies
        self._bounds = value_bounds(max_bytes)
        self._most_bytes = max(max_bytes, BOUNDED_BYTES)
        """Bytes for which a body counts that takes all that its values may take."""
        self._ignored = self._max_uncounted_bytes / self._most_bytes
        # `ValueBounds.share` of most bodies, computed in advance.
        self._plain_bytes = int(self._ignored * self._bounds.entries)
        self._plain_containers = int(self._ignored * self._bounds.containers)

    def admits_at_once(self, request: Request) -> bool:
        """Check a body that has been read."""
        body = request.body
        return (
            len(body) <= 2 * self._plain_containers  # one takes two bytes, in JSON that can be parsed
            or (len(body) <= self._plain_bytes and body.count(b"{") + body.count(b"[") <= self._plain_containers)
        ) or self._counted_bytes(body) <= self._max_uncounted_bytes

    def _counted_bytes(self, body: bytes) -> int:
        return max(len(body), int(self._most_bytes * self._bounds.share(body, self._ignored)))

    def _count_values(self, body: bytes, take: Callable[[int], bool]) -> int:
        counted = self._counted_bytes(body)
        if counted > len(body) and not take(counted - len(body)):
            raise BodiesTooLargeError
        return counted

    async def admit(self, request: Request) -> bool:
        """Read and check the body."""
        if request.scope["method"] != "POST" and not request.is_for_route:
            return True
        length = request.headers.get(b"content-length", b"")
        take = request.exits.enter_context(self._bodies.growing(request.account))
        try:
            body = await read_body(request.receive, self._max_bytes, int(length) if length.isdigit() else None, take)
            is_json = not request.is_for_route or b"json" in request.headers.get(b"content-type", b"").lower()
            if is_json and (excess := self._bounds.excess(body)) is not None:
                await send_error(request.send, 413, too_many_values(excess))
                return False
            request.counted_bytes = self._count_values(body, take)
        except BodyTooLargeError:
            await send_error(request.send, 413, f"the body is over the limit of {self._max_bytes} bytes")
            return False
        except BodiesTooLargeError:
            error = no_room_for_body()
            await send_error(
                request.send,
                429,
                error.message,
                error.code,
                limit="--max-request-bytes",
                retry_after_seconds=_RETRY_SECONDS,
            )
            return False
        except ClientGoneError:
            return False
        request.replace_body(body)
        return True


def is_message(scope: Scope) -> bool:
    """True for a POST of a message over SSE, judged by the path."""
    path: str = scope["path"]
    return path.rstrip("/").endswith(MESSAGES_PATH.rstrip("/"))

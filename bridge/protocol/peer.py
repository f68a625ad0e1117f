"""The other side of a connection: requests to it that are under way, and the messages that come from it.

    request() ──> PendingRequest ──> its text ──> a transport
                        ↑ progress, result, error, later work
    receive(text) ──────┤
                        ├──> request of the other side ──╮
                        ╰──> notification ───────────────┴──> callbacks

A transport gives the text of each received message to `Peer.receive`, with the request on whose own stream it was
received, if there is one. What happens to a request is told by its callback, in the same turn.

Clauses: MCP 2025-11-25 and 2026-07-28, Basic Protocol, "Messages", "Progress", "Cancellation".
"""

from __future__ import annotations

import re
import sys
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from pydantic_core import to_json

from bridge.protocol.messages import ProtocolError, is_call, is_response, notification, write_leniently
from bridge.protocol.results import valid_result
from bridge.protocol.versions import CAPABILITIES_KEY, MODERN_VERSIONS, SUBSCRIPTION_ID_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.types import Json

Work: TypeAlias = "Callable[[], Awaitable[None]]"
"""Work for a request that has to be awaited, such as the delivery of its progress."""

_MAX_TEMPLATES = 1000
_MAX_TEMPLATE_BYTES = 4096
"""Maximum bytes of a cached template, which the capabilities of callers make longer."""
_CALL_MEMBERS = 2
"""Parameters of a call with only a name and arguments."""
_ID = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(\d{1,19}),|\{"(?:result|error)":.*,"jsonrpc":"2\.0","id":(\d{1,19})\}\s*\Z', re.DOTALL
)
"""IDs of responses as the official SDKs for Python and TypeScript write them."""


class PeerLostError(Exception):
    """No response can be received any more: the connection is closed, or the request was not sent."""


class Parser(Protocol):
    """Parses JSON within the limits of a side."""

    def __call__(self, text: bytes, *, is_standard: bool) -> Any:
        """Parse JSON; without `is_standard`, ``NaN`` and ``Infinity`` are numbers.

        Raises:
            ValueError: It is not JSON.
            Exception: It exceeds the limits.
        """
        ...


class PendingRequest:
    """A request to the other side, until it has an outcome.

    Attributes:
        id: JSON-RPC ID, and token of its progress.
        method: MCP method.
        version: Protocol version of the message.
        text: The message.
        work: What whoever waits for the outcome has to await first, in its order.
        is_over: True once there is an outcome.
        result: The result; None before, and for an error.
        error: The error; None before, and for a result.
        is_sent: True if it may have reached the other side.
        status: HTTP status of the response; None without one.
        failure: Error of the transport; None without one, or if the transport reports none.
        has_expired: True if the other side does not know the session any more, and so has not run the request.
        name: Name of its target, which HTTP repeats in a header; None without one.
        headers: Further headers over HTTP.
        carrier: State of the transport; None without one.
        stream: Takes a long result in parts, while it is received; None to receive it whole.
        is_checked: True if the result has to have the form of its method.
        owner: On whose behalf it was sent; None for the connection itself.
        keep: Returns the result to keep, given the result and its text; None to keep it as it is.
        on_progress: Called with its progress; None if it wants none.
        on_notification: Called with the notifications of a subscription; None for any other request.
        on_change: Called when there is an outcome, or later work.
    """

    # Defaults stay in the class, which is faster than slots.
    is_over = False
    result: Json | None = None
    error: Exception | None = None
    is_sent = False
    status: int | None = None
    failure: Exception | None = None
    has_expired = False
    name: str | None = None
    headers: Mapping[str, str] | None = None
    owner: Any = None
    carrier: Any = None
    stream: Any = None
    is_checked = True
    keep: Callable[[Json, bytes | None], Json] | None = None
    on_progress: Callable[[float, float | None, str | None], None] | None = None
    on_notification: Callable[[Json], None] | None = None
    on_change: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.id = 0
        self.method = ""
        self.version = ""
        self.text = b""
        self.work: deque[Work] = deque()

    def restart(self) -> None:
        """Forget the outcome, to be sent as another request."""
        self.is_over = self.is_sent = self.has_expired = False
        self.result = self.error = self.status = self.failure = None

    def settle(self, result: Json) -> None:
        """Set the result, unless there is an outcome."""
        if not self.is_over:
            self.is_over, self.result = True, result
            self._changed()

    def fail(self, error: Exception) -> None:
        """Set the error, unless there is an outcome."""
        if not self.is_over:
            self.is_over, self.error = True, error
            self._changed()

    def defer(self, work: Work) -> None:
        """Let whoever waits for the outcome await something first."""
        self.work.append(work)
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


class Peer:
    """The other side of a connection.

    Args:
        parse: Parses received JSON.
        on_request: Called with a request of the other side, and the request on whose stream it was received.
        on_notification: The same with a notification, except for progress.
        on_malformed: Called with a notification that lacks what its method needs.
        on_late: Called with the ID of a response to no request that is under way.

    Attributes:
        version: Protocol version of requests; empty before the first.
        pending: Requests under way, by ID.
    """

    def __init__(
        self,
        parse: Parser,
        on_request: Callable[[Json, PendingRequest | None], None],
        on_notification: Callable[[Json, PendingRequest | None], None],
        on_malformed: Callable[[Json], None],
        on_late: Callable[[Any], None],
    ) -> None:
        self.version = ""
        self.is_modern = False
        self.pending: dict[int, PendingRequest] = {}
        self._parse = parse
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_malformed = on_malformed
        self._on_late = on_late
        self._stamps: Json = {}
        self._stamps_text = b""
        self._templates: dict[tuple[str, bytes], bytes] = {}
        self._ids = count(1)

    def use(self, version: str, stamps: Json) -> None:
        """Send requests of a version from now on, with these members of ``_meta`` in the modern era."""
        self.version, self.is_modern = version, version in MODERN_VERSIONS
        self._stamps = stamps
        self._stamps_text = to_json(stamps)[1:-1]
        self._templates.clear()

    # --- requests -----------------------------------------------------------------------------------------------------

    def write(
        self,
        request: PendingRequest,
        method: str,
        params: Mapping[str, Any],
        *,
        arguments: bytes | None = None,
        capabilities: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a request, which is under way from now on.

        Args:
            request: The request; its ID, method and text are set.
            method: MCP method.
            params: Parameters.
            arguments: JSON of the arguments among the parameters; None to write them.
            capabilities: Capabilities that it declares in place of this side's (modern era); None for this side's.
            meta: Further members of ``_meta``.
        """
        id_ = request.id = next(self._ids)
        request.method, request.version = method, self.version
        self.pending[id_] = request
        stamps, stamps_text = self._stamps, self._stamps_text
        if capabilities is not None and CAPABILITIES_KEY in stamps:
            stamps = stamps | {CAPABILITIES_KEY: capabilities}
            stamps_text = to_json(stamps, inf_nan_mode="null")[1:-1]
        token = None if request.on_progress is None else id_
        if len(params) != _CALL_MEMBERS:
            arguments = None
        if arguments is not None and token is not None and not meta:
            key = params["name"], stamps_text
            request.text = (self._templates.get(key) or self._template(*key)) % (id_, arguments, id_)
            return
        if arguments is not None:
            members = b'"name":%b,"arguments":%b' % (to_json(params["name"]), arguments)
        else:
            members = write_leniently({key: params[key] for key in params if key != "_meta"})[1:-1]
        given = {**params.get("_meta", {}), **(meta or {})}
        if given:
            given = {key: value for key, value in given.items() if key != "progressToken"} | stamps
            stamps_text = to_json(given)[1:-1]
        if token is not None:
            stamps_text = b'%b%b"progressToken":%d' % (stamps_text, b"," if stamps_text else b"", token)
        if stamps_text:
            members += b'%b"_meta":{%b}' % (b"," if members else b"", stamps_text)
        written = b',"params":{%b}' % members if members else b""
        request.text = b'{"jsonrpc":"2.0","id":%d,"method":%b%b}' % (id_, to_json(method), written)

    def discard(self, request: PendingRequest) -> None:
        """Forget a request that nothing waits for any more."""
        self.pending.pop(request.id, None)

    def fail(self, error: Exception) -> None:
        """Fail all requests under way, because no response can be received any more."""
        for request in tuple(self.pending.values()):
            request.fail(error)

    def _template(self, name: str, stamps: bytes) -> bytes:
        """Call of a tool, with places for its ID, arguments and progress token."""
        named, stamped = to_json(name).replace(b"%", b"%%"), (stamps and stamps + b",").replace(b"%", b"%%")
        params = b'{"name":%b,"arguments":%%b,"_meta":{%b"progressToken":%%d}}' % (named, stamped)
        template = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' + params + b"}"
        if len(template) <= _MAX_TEMPLATE_BYTES:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            self._templates[name, stamps] = template
        return template

    # --- messages of the other side -----------------------------------------------------------------------------------

    def receive(self, text: bytes, of: PendingRequest | None = None) -> None:
        """Handle a message.

        Args:
            text: The message.
            of: The request on whose own stream it was received; None for a stream that carries all messages.

        Raises:
            ValueError: It is not a message.
            Exception: As by `Parser`.
        """
        request = of if of is not None else self.responded(text)
        if request is not None and not request.is_over and self._has_settled(request, text):
            return
        message = self._parse(text, is_standard=False)
        if is_call(message):
            if "id" in message:
                self._on_request(message, of)
            elif message["method"] == "notifications/progress":
                self._progress(message)
            else:
                self._notify(message, of)
        elif is_response(message):
            self._respond(message, of)
        else:
            raise ValueError("it is not a message of JSON-RPC 2.0")

    def responded(self, text: bytes) -> PendingRequest | None:
        """Return the request that a text responds to, if that is known before it is parsed; None otherwise."""
        found = _ID.match(text) if self.pending else None
        return None if found is None else self.pending.get(int(found[1] or found[2]))

    def _has_settled(self, request: PendingRequest, text: bytes) -> bool:
        """Settle a request by the text of its response; return False for a text in another form."""
        part = _result_text(text, request.id)
        if part is None:
            return False
        try:
            result = self._parse(part, is_standard=True)
        except ValueError:
            return False  # the response has further members, or numbers that only some parsers read
        if type(result) is not dict:
            return False
        self._settle(request, result, part)
        return True

    def _settle(self, request: PendingRequest, result: Json, text: bytes | None = None) -> None:
        try:
            valid = valid_result(request.method, request.version, result) if request.is_checked else result
            request.settle(valid if request.keep is None else request.keep(valid, text if valid is result else None))
        except ValueError as error:
            request.fail(error)
        self.pending.pop(request.id, None)

    def _respond(self, message: Json, of: PendingRequest | None) -> None:
        id_ = message.get("id")
        request = self.pending.get(_number(id_))
        if request is None and of is not None and id_ is None and not of.is_over:
            request = of  # an error of a server that could not read the ID
        if request is None or request.is_over:
            self._on_late(id_)
        elif (error := message.get("error")) is not None:
            self.pending.pop(request.id, None)
            request.fail(ProtocolError(error["code"], error["message"], error.get("data")))
        else:
            self._settle(request, message["result"])

    def _progress(self, message: Json) -> None:
        params = message.get("params") or {}
        token, progress, total, text = (params.get(key) for key in ("progressToken", "progress", "total", "message"))
        request = self.pending.get(token) if type(token) is int else None
        if not _is_number(progress):
            self._on_malformed(message)
        elif request is not None and request.on_progress is not None:
            request.on_progress(
                float(progress), float(total) if _is_number(total) else None, text if isinstance(text, str) else None
            )

    def _notify(self, message: Json, of: PendingRequest | None) -> None:
        """Handle a notification of a subscription, or of the other side."""
        params = message.get("params") or {}
        is_end = message["method"] == "notifications/cancelled"
        meta = params.get("_meta")
        id_ = params.get("requestId") if is_end else meta.get(SUBSCRIPTION_ID_KEY) if isinstance(meta, dict) else None
        subscription = self.pending.get(_number(id_)) or of
        if subscription is None or subscription.on_notification is None:
            self._on_notification(message, of)
        elif is_end:
            subscription.fail(PeerLostError("the subscription was ended"))
        else:
            subscription.on_notification(message)


def result_in(message: Json, request: PendingRequest) -> Json | None:
    """Return the result in a response that was parsed; None if it is no response to the request.

    Raises:
        ProtocolError: It is an error.
        InvalidResultError: The result is not valid MCP.
    """
    if _number(message.get("id")) != request.id:
        return None
    match message.get("error"):
        case {"code": int(code), "message": str(text), **more}:
            raise ProtocolError(code, text, more.get("data"))
    if not is_response(message):
        return None
    return valid_result(request.method, request.version, message["result"])


def cancellation(request: PendingRequest) -> bytes:
    """Return the notification that cancels a request."""
    return notification("notifications/cancelled", {"requestId": request.id, "reason": "caller cancelled"})


def _result_text(text: bytes, request_id: int) -> bytes | None:
    """Return the text of the result in a response that an official SDK has written; None in any other form."""
    beginning = b'{"jsonrpc":"2.0","id":%d,"result":' % request_id  # Python
    if text.startswith(beginning) and text.endswith(b"}"):
        return text[len(beginning) : -1]
    ending = b',"jsonrpc":"2.0","id":%d}' % request_id  # TypeScript
    if text.startswith(b'{"result":') and text.endswith(ending):
        return text[len(b'{"result":') : -len(ending)]
    return None


def _number(id_: Any) -> int:
    """Return the ID of a request of this side; -1 for any other."""
    if type(id_) is int:
        return id_
    is_number = isinstance(id_, str) and id_.isascii() and id_.isdigit() and len(id_) < 20  # noqa: PLR2004 - as `_ID`
    return int(id_) if is_number else -1


def _is_number(value: Any) -> TypeGuard[int | float]:
    """True for a number that a float can represent."""
    return isinstance(value, float) or (type(value) is int and abs(value) <= sys.float_info.max)

"""HTTP client of the SDK's HTTP transports that records the outcome of each request.

The SDK's transports end as a whole after one failed request, and hide the reason. This client answers them with an
HTTP error instead, records the failure on the `OutgoingRequest`, and notifies the session.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import httpx2
from mcp_types import jsonrpc_message_adapter
from pydantic_core import from_json, to_json

from bridge.client.auth.errors import SignInError
from bridge.client.transports.channel import CONNECTION_CLOSED, current_request
from bridge.client.transports.event_stream import CheckedEvents, EndingStream
from bridge.client.transports.limits import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    ResponseTooLongError,
    default_ssl_context,
    large_message,
    limited,
    media_type,
    parse_error,
    stand_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from bridge.client.transports.channel import ChannelEvents, OutgoingRequest
    from bridge.types import Json

_logger = logging.getLogger("bridge.client")

UNAUTHORIZED = 401
"""Status of a response that demands credentials."""

NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
"""Errors before anything of a request was sent."""

_NEVER_RUN_STATUSES = frozenset({UNAUTHORIZED, 407, 421})
_SESSION_HEADER = "mcp-session-id"

_UNKNOWN_SESSION = re.compile(
    rb"session[ -]?id|not initialized"
    rb"|(?:no|no valid|no such|no active|invalid|unknown|expired|missing) session"
    rb"|(?:could not|couldn't|cannot|can't|unable to|failed to|did not) find (?:the |a |your |this )?session"
    rb"|session (?:\S*\d\S* )?(?:is |was |has )?(?:been )?"
    rb"(?:not found|unknown|invalid|expired|terminated|closed|does not exist|doesn't exist)",
    re.IGNORECASE,
)
"""Error texts of servers that respond 400 instead of 404 for an unknown session."""

_WRITE_SECONDS = 30.0
_MAX_REDIRECTS = 5
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})

START_SOON = "bridge.client.start_soon"
"""Request extension: starts a background task of the session, for `httpx2.Auth`."""


class TrackedHttpClient(httpx2.AsyncClient):
    """HTTP client that records outcomes on outgoing requests and reports events.

    Args:
        events: Receives the events.
        record_status: Called with the status of each response to a message.
        is_sse: True if one event stream carries all responses.
        headers: Headers of every request.
        connect_seconds: Maximum seconds for a TCP connection.
        auth: Authentication of the requests; None for none.
        learn: Called with each request of a message that succeeded, and its response; None for nothing.
    """

    def __init__(
        self,
        events: ChannelEvents,
        record_status: Callable[[int], None],
        *,
        is_sse: bool,
        headers: dict[str, str],
        connect_seconds: float,
        auth: httpx2.Auth | None = None,
        learn: Callable[[httpx2.Request, httpx2.Response], None] | None = None,
    ) -> None:
        super().__init__(
            headers={"accept-encoding": "gzip", **headers},
            auth=auth,
            verify=default_ssl_context(),
            event_hooks={"response": [limited(MAX_MESSAGE_BYTES)]},
            timeout=httpx2.Timeout(None, connect=connect_seconds, write=_WRITE_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
        )
        self._events = events
        self._record_status = record_status
        self._is_sse = is_sse
        self._learn = learn

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await super().__aexit__(exc_type, exc_value, traceback)
        # The SDK's transport keeps the client in a cycle, and a sign-in must not outlive its sessions.
        self.auth = httpx2.Auth()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; failures of a POST become responses with an HTTP error."""
        request.extensions[START_SOON] = self._events.start_soon
        await request.aread()  # redirects send it again, and its message is read here
        if request.method == "GET":
            return await self._get(request, options)
        outgoing = current_request.get()
        if request.method != "POST":
            return await self._delete(request, options)
        message = from_json(request.content)
        is_cancellation = message.get("method") == "notifications/cancelled"
        if is_cancellation or "method" not in message:  # later messages need not wait for it, nor for a response
            if is_cancellation and outgoing is not None:
                request = _with_sent_id(request, message, outgoing)
            self._events.start_soon(self._send_in_background, request)
            return httpx2.Response(202, request=request)
        if outgoing is not None and outgoing.sent and outgoing.received is None:
            outgoing = None
        response = await self._post(request, options, outgoing)
        if self._learn is not None and response.is_success:
            self._learn(request, response)
        return response

    async def _post(
        self, request: httpx2.Request, options: dict[str, Any], outgoing: OutgoingRequest | None
    ) -> httpx2.Response:
        if outgoing is not None:
            outgoing.sent = True
        try:
            response = await self._received(request, outgoing) or await self._answered(request, options)
            if _media_type(response).startswith("application/json"):  # as in the SDK
                await response.aread()
                response = self._checked_response(request, response, outgoing)
            elif not self._is_sse:
                self._watch(response, self._answer_ended)
        except httpx2.TransportError as error:
            if outgoing is not None:
                outgoing.failure = error
                outgoing.cut_off = True
                outgoing.sent = not isinstance(error, NEVER_SENT)
            return self._undelivered(request, error)
        except SignInError as error:
            return self._not_signed(request, error, outgoing)
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            await self._refused(request, response, outgoing)
        self._record_status(response.status_code)
        if outgoing is not None:
            outgoing.status = response.status_code
        return response

    async def _received(self, request: httpx2.Request, outgoing: OutgoingRequest | None) -> httpx2.Response | None:
        """Return the response that was received before the SDK sends its request; None without one."""
        if outgoing is None or (response := outgoing.received) is None:
            return None
        outgoing.received, response.request = None, request
        self._events.handed_over(outgoing, from_json(request.content)["id"])
        for hook in self.event_hooks["response"]:
            await hook(response)
        return response

    def _checked_response(
        self, request: httpx2.Request, response: httpx2.Response, outgoing: OutgoingRequest | None
    ) -> httpx2.Response:
        """Replace a response whose content is large, or is not a message; raises as `_shortened`."""
        try:
            content = self._shortened(response.content, outgoing)
        except ValueError as error:
            if response.status_code >= httpx2.codes.BAD_REQUEST:
                return response  # the SDK responds with an error of its own
            content = parse_error("JSON response", error, from_json(request.content).get("id"))
        if content is response.content:
            return response
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _FRAMING]
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)

    def _checked_event(self, data: bytes, outgoing: OutgoingRequest | None) -> bytes:
        """Replace the data of an event that is large, or is not a message; raises as `_shortened`."""
        try:
            return self._shortened(data.decode(errors="replace").encode(), outgoing)  # as the SDK decodes it
        except ValueError as error:
            return parse_error("SSE message", error, None)  # the SDK sets the ID

    def _shortened(self, text: bytes, outgoing: OutgoingRequest | None) -> bytes:
        """Validate the text of a message; return it, or a short message for the SDK instead of a large one.

        Raises:
            ResponseTooLongError: It has too many values.
            ValueError: It is not a message.
        """
        if len(text) > LARGE_BYTES:
            message = large_message(text)
            return stand_in(message, self._events.parsed(message, outgoing))
        jsonrpc_message_adapter.validate_json(text, by_name=False)
        return text

    async def _answered(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Send a request, and follow redirects within its origin that keep the method (307 and 308 for a POST)."""
        options = {**options, "follow_redirects": False}
        is_streamed = options.pop("stream", False)
        for _ in range(_MAX_REDIRECTS):
            response = await super().send(request, stream=True, **options)
            following = response.next_request
            if following is None or not _is_within_origin(request, following):
                break
            await response.aclose()
            request = following
        if not is_streamed:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    async def _refused(
        self, request: httpx2.Request, response: httpx2.Response, outgoing: OutgoingRequest | None
    ) -> None:
        status = response.status_code
        refusal = httpx2.HTTPStatusError(f"HTTP {status}", request=request, response=response)
        lost = (self._is_sse or _SESSION_HEADER in request.headers) and await _lost_session(response)
        if outgoing is not None:
            outgoing.failure = refusal
            sent_id = from_json(request.content).get("id") if outgoing.plain_id is None else outgoing.plain_id
            if outgoing.call is not None and _answers(sent_id, response):
                if lost or status == UNAUTHORIZED:
                    self._events.suspect()  # the health check shows if it concerned the session
                return
            outgoing.expired = lost
            outgoing.sent = not lost and status not in _NEVER_RUN_STATUSES
        if lost:
            self._events.expired()
        elif status == UNAUTHORIZED:
            self._events.unauthorized(status)

    def _not_signed(
        self, request: httpx2.Request, error: SignInError, outgoing: OutgoingRequest | None = None
    ) -> httpx2.Response:
        """Create the response for a request that cannot be signed."""
        status = httpx2.codes.FORBIDDEN if error.is_step_up else UNAUTHORIZED
        if outgoing is not None:
            outgoing.failure, outgoing.sent = error, False
        if not error.is_step_up:
            self._events.unauthorized(status, error)
        self._record_status(status)
        return httpx2.Response(status, request=request)

    def _undelivered(self, request: httpx2.Request, error: Exception) -> httpx2.Response:
        """Create the response for a message that could not be sent."""
        _logger.debug("a message could not be sent: %r", error)
        self._events.undelivered(error)
        refusal = {"code": CONNECTION_CLOSED, "message": "Connection closed"}
        return httpx2.Response(503, json={"jsonrpc": "2.0", "id": 0, "error": refusal}, request=request)

    async def _get(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Open the stream for the server's own messages; its end requests a health check."""
        try:
            response = await self._answered(request, options)
        except httpx2.TransportError:
            if not self._is_sse:
                self._events.suspect()
            raise
        except SignInError as error:
            return self._not_signed(request, error)
        if response.status_code == UNAUTHORIZED:
            self._events.unauthorized(response.status_code)
        elif response.status_code == httpx2.codes.OK:
            if (outgoing := current_request.get()) is not None:
                outgoing.cut_off = False  # the response continues here
            self._watch(response, self._stream_ended)
        elif response.status_code == httpx2.codes.NOT_FOUND and not self._is_sse:
            self._events.suspect()
        return response

    def _watch(self, response: httpx2.Response, ended: Callable[[Exception | None], None]) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        stream = response.stream
        if response.status_code < httpx2.codes.BAD_REQUEST and _media_type(response) == "text/event-stream":
            outgoing = current_request.get()
            response.encoding = "utf-8"  # whatever its header says (HTML Living Standard, 9.2.6)
            stream = CheckedEvents(stream, lambda data: self._checked_event(data, outgoing), MAX_MESSAGE_BYTES)
        response.stream = EndingStream(stream, ended)

    def _answer_ended(self, error: Exception | None) -> None:
        """Handle the end of a stream before the response was complete."""
        _logger.debug("the stream of a response ended: %r", error)
        if (outgoing := current_request.get()) is not None:
            outgoing.cut_off = True
            if isinstance(error, ResponseTooLongError):
                outgoing.failure = error

    def _stream_ended(self, error: Exception | None) -> None:
        self._answer_ended(error)
        if self._is_sse:
            self._events.stream_lost(error or httpx2.RemoteProtocolError("the server ended its stream"))
        else:
            self._events.suspect()

    async def _delete(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """End the session on the server, unless the connection was lost; a failure is only logged."""
        if not self._events.is_lost:
            try:
                return await self._answered(request, options)
            except (httpx2.TransportError, SignInError) as error:
                _logger.debug("the session could not be ended: %r", error)
        return httpx2.Response(204, request=request)

    async def _send_in_background(self, request: httpx2.Request) -> None:
        """Send a message without blocking later ones, as the SDK's transports would."""
        try:
            response = await self._answered(request, {})
            if response.status_code >= httpx2.codes.BAD_REQUEST:
                self._events.suspect()
        except (httpx2.TransportError, SignInError) as error:
            _logger.debug("a message could not be sent: %r", error)
            self._events.suspect()


def _with_sent_id(request: httpx2.Request, message: Json, outgoing: OutgoingRequest) -> httpx2.Request:
    """A cancellation with the ID that the cancelled request was sent with, which is recorded."""
    outgoing.request_id = message["params"]["requestId"]
    if outgoing.plain_id is None:
        return request
    message["params"]["requestId"] = outgoing.request_id = outgoing.plain_id
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
    return httpx2.Request(request.method, request.url, headers=headers, content=to_json(message))


def _is_within_origin(request: httpx2.Request, following: httpx2.Request) -> bool:
    """True for a redirect that keeps the method, origin and credentials of a request."""
    url, other = request.url, following.url
    is_upgrade = (url.scheme, url.port, other.scheme, other.port) == ("http", None, "https", None)
    is_same = (url.scheme, url.port) == (other.scheme, other.port) or is_upgrade
    has_own_user = bool(other.userinfo) and other.userinfo != url.userinfo
    return is_same and url.host == other.host and request.method == following.method and not has_own_user


def _media_type(response: httpx2.Response) -> str:
    return media_type(response.headers.get("content-type", ""))


def _answers(sent_id: object, response: httpx2.Response) -> bool:
    """True for an error with the ID of its request: the server handled the request, and may have run it."""
    if _media_type(response) != "application/json":
        return False
    try:
        answer = from_json(response.content)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("id") is not None and str(answer["id"]) == str(sent_id)


async def _lost_session(response: httpx2.Response) -> bool:
    """True if the server no longer knows the session: 404, as in the protocol, or 400 with a text about it."""
    if response.status_code == httpx2.codes.NOT_FOUND:
        return True
    if response.status_code != httpx2.codes.BAD_REQUEST:
        return False
    return _UNKNOWN_SESSION.search((await response.aread())[:1000]) is not None

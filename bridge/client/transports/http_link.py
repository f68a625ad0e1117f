"""The base of both links over HTTP: their HTTP client, and the outcome of refused and lost requests."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from http.client import responses
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
from pydantic_core import from_json

from bridge.client.auth.errors import SignInError
from bridge.client.transports.http_client import NEVER_SENT, UNAUTHORIZED, MessageClient, closed
from bridge.client.transports.link import Cause, HttpStatusError, Link
from bridge.client.transports.received_data import SUCCESS, ResponseTooLongError, media_type
from bridge.client.transports.refusals import reason_in, refusal_of
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError
from bridge.protocol.versions import INVALID_REQUEST, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.transports.link import LinkOptions
    from bridge.protocol.peer import PendingRequest

_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _METHOD_NOT_ALLOWED = 400, 403, 404, 405
_BACKGROUND_SECONDS = 30.0
MAX_POSTING = 16
"""Maximum messages without a response that are sent at once, such as answers to a server's requests."""
_NEVER_RUN_STATUSES = frozenset({UNAUTHORIZED, 407, 421})
_CHECK_THE_PATH = "check the path: it is often /mcp or /sse"
_UNKNOWN_SESSION = re.compile(
    rb"session[ -]?id|not initialized"
    rb"|(?:no|no valid|no such|no active|invalid|unknown|expired|missing) session"
    rb"|(?:could not|couldn't|cannot|can't|unable to|failed to|did not) find (?:the |a |your |this )?session"
    rb"|session (?:\S*\d\S* )?(?:is |was |has )?(?:been )?"
    rb"(?:not found|unknown|invalid|expired|terminated|closed|does not exist|doesn't exist)",
    re.IGNORECASE,
)
"""Error texts of servers that respond 400 instead of 404 for an unknown session."""

_logger = logging.getLogger("bridge.client")


class HttpLink(Link):
    """Link over HTTP.

    Args:
        url: The server's URL.
        headers: Headers of every request.
        auth: Authentication of the requests; None for none.
        options: Settings of the link.

    Attributes:
        status: HTTP status of the last response to a message; None without one.
    """

    finishes_calls = True

    def __init__(self, url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, options: LinkOptions) -> None:
        self.status: int | None = None
        self._reason = ""
        self._url = url
        self._headers = headers
        self._auth = auth
        self._options = options
        self._events = options.events
        self._client: MessageClient
        self._posting = anyio.CapacityLimiter(MAX_POSTING)

    def _new_client(self) -> MessageClient:
        return MessageClient(self._url, self._headers, self._auth, self._events, self._options.connect_seconds)

    async def _close(self) -> None:
        """Close the client, and forget the sign-in, which must not outlive its sessions."""
        self._auth = None
        await self._client.aclose()

    @property
    def _has_session(self) -> bool:
        """True if the server may forget a session."""
        return True

    @property
    def reason(self) -> str:
        """Reason of the last refusal in the server's words; empty without one, or if it is the status in words."""
        is_phrase = self.status is not None and is_status_phrase(self._reason, self.status)
        return "" if is_phrase else self._reason

    def _record_status(self, status: int, reason: str = "") -> None:
        self.status, self._reason = status, reason

    def _receive(self, data: bytes) -> None:
        """Handle the message in an event of a stream that carries messages of the server."""
        try:
            self._events.receive(data)
        except ValueError as error:
            _logger.debug("server %r: an event is not a message: %s", self._options.server, error)

    async def _send_in_background(self, request: httpx2.Request) -> None:
        """Send a message that has no response; a failure requests a health check."""
        try:
            with anyio.fail_after(_BACKGROUND_SECONDS):
                async with self._posting:
                    response = await self._client.send(request)
                    await closed(response)
            if response.status_code >= _BAD_REQUEST:
                self._events.suspect()
        except (httpx2.TransportError, SignInError, TimeoutError) as error:
            _logger.debug("a message could not be sent: %r", error)
            self._events.suspect()

    async def _event_stream(self, headers: Mapping[str, str]) -> httpx2.Response | None:
        """Open an event stream; return None if the server does not, or cannot be reached."""
        try:
            response = await self._client.send(self._client.request("GET", headers))
        except httpx2.TransportError as error:
            _logger.debug("server %r: no event stream: %r", self._options.server, error)
            self._events.suspect()
            return None
        except SignInError as error:
            if not error.is_step_up:
                self._events.unauthorized(UNAUTHORIZED, error)
            return None
        kind = media_type(response.headers.get("content-type", ""))
        if response.status_code in SUCCESS and kind == "text/event-stream":
            return response
        await closed(response)
        if response.status_code == UNAUTHORIZED:
            self._events.unauthorized(UNAUTHORIZED)
        elif response.status_code == _NOT_FOUND:
            self._events.suspect()
        return None

    async def _end_session(self, headers: Mapping[str, str]) -> None:
        """End the session on the server; a failure is only logged."""
        try:
            await closed(await self._client.send(self._client.request("DELETE", headers)))
        except (httpx2.TransportError, SignInError) as error:
            _logger.debug("server %r: the session could not be ended: %r", self._options.server, error)

    def lost(self, request: PendingRequest, error: Exception) -> None:
        """Fail a request that could not be sent, or whose response was lost."""
        _logger.debug("a request has no response: %r", error)
        request.failure = error
        request.is_sent = request.is_sent and not isinstance(error, NEVER_SENT)
        if not isinstance(error, ResponseTooLongError):
            self._events.undelivered(error)
        lost = PeerLostError("the connection was lost")
        lost.__cause__ = error
        request.fail(lost)

    def _not_signed(self, request: PendingRequest, error: SignInError) -> None:
        """Fail a request that cannot be signed."""
        status = _FORBIDDEN if error.is_step_up else UNAUTHORIZED
        request.failure, request.is_sent = error, False
        if not error.is_step_up:
            self._events.unauthorized(status, error)
        self._record_status(status)
        request.status = status
        request.fail(HttpStatusError())

    async def _refused(self, request: PendingRequest, response: httpx2.Response) -> None:
        """Fail a request that was answered with an HTTP error."""
        is_json = media_type(response.headers.get("content-type", "")) == "application/json"
        response = await refusal_of(response, is_whole=is_json)
        status = response.status_code
        self._record_status(status, reason_in(response))
        request.status = status
        request.failure = httpx2.HTTPStatusError(f"HTTP {status}", request=response.request, response=response)
        body = _json_in(response)
        lost = self._has_session and _is_of_lost_session(response)
        if request.owner is not None and body.get("id") is not None and str(body["id"]) == str(request.id):
            if lost or status == UNAUTHORIZED:  # the server has handled the request, and may have run it
                self._events.suspect()  # the health check shows if it concerned the session
        else:
            request.has_expired = lost
            request.is_sent = not lost and status not in _NEVER_RUN_STATUSES
            if lost:
                self._events.expired()
            elif status == UNAUTHORIZED:
                self._events.unauthorized(status)
        if "error" in body:
            with suppress(ValueError, ResponseTooLongError):
                self._events.receive(response.content, request)
        match body.get("error"):
            case {"code": int(code), "message": str(message), **more} if body.get("jsonrpc") == "2.0":
                self._reason = message
                request.fail(ProtocolError(code, message, more.get("data")))  # whatever its ID
        if status != _NOT_FOUND:
            request.fail(HttpStatusError())
        elif self._has_session:
            request.fail(ProtocolError(INVALID_REQUEST, "Session terminated"))
        else:
            request.fail(ProtocolError(METHOD_NOT_FOUND, "Not Found"))

    def explain_start(self, error: BaseException) -> Cause | None:
        """Explain a handshake that was refused with an HTTP status."""
        if self.status is None or self.status < _BAD_REQUEST:
            return None
        unknown = isinstance(error, HttpStatusError)  # its message is none of the server
        return _cause_of_status(self.status, self._reason or ("" if unknown else getattr(error, "message", "")))

    def explain_error(self, error: BaseException) -> Cause | None:
        """Explain an HTTP error."""
        if isinstance(error, NoEventStreamError):
            return Cause("no MCP server at this URL: its answer is not an event stream", _CHECK_THE_PATH)
        response = getattr(error, "response", None)
        return _cause_of_status(response.status_code, reason_in(response)) if response is not None else None


class NoEventStreamError(httpx2.RemoteProtocolError):
    """A response to GET is no event stream, such as a web page."""


def _json_in(response: httpx2.Response) -> dict[str, Any]:
    """Return the object in the body of a response in JSON; an empty one without."""
    body: Any = None
    if media_type(response.headers.get("content-type", "")) == "application/json":
        with suppress(ValueError):
            body = from_json(response.content)
    return body if isinstance(body, dict) else {}


def _is_of_lost_session(response: httpx2.Response) -> bool:
    """True if the server no longer knows the session: 404, as in the protocol, or 400 with a text about it."""
    if response.status_code == _NOT_FOUND:
        return True
    return response.status_code == _BAD_REQUEST and _UNKNOWN_SESSION.search(response.content[:1000]) is not None


def is_status_phrase(text: str, status: int) -> bool:
    """True if a text is the name of an HTTP status, such as ``404 Not Found``."""
    return text.lower().endswith(responses.get(status, "\0").lower())


def _cause_of_status(status: int, message: str = "") -> Cause:
    detail = f": {message}" if message else ""
    if status == _FORBIDDEN:
        return Cause(f"it refuses this client (HTTP 403){detail}", "check its allowed hosts, origins and keys")
    if status in {_NOT_FOUND, _METHOD_NOT_ALLOWED}:
        shown = "" if is_status_phrase(message, status) else detail
        return Cause(f"no MCP server at this URL (HTTP {status}){shown}", _CHECK_THE_PATH)
    return Cause(f"HTTP {status}{detail}")


def unfollowed(response: httpx2.Response) -> str:
    """Describe a redirect that was not followed, without what may be secret in it."""
    if response.next_request is None:
        return f"Redirect without a location (HTTP {response.status_code})"
    url = response.next_request.url.copy_with(userinfo=b"", query=None, fragment=None)
    return f"Redirect to {url} not followed; use that URL as the endpoint if it is the intended server"

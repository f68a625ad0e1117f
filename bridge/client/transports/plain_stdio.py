"""Plain requests over stdio.

    line of the child ──> PlainStdio ──> response or progress of a plain request
                              ╰────────> anything else: the SDK's session

Lines are sent and received with those of the SDK's session, in their order (`stdio_streams`). On asyncio only.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import anyio
from mcp import MCPError
from pydantic import ValidationError

from bridge.client.transports.channel import CONNECTION_CLOSED
from bridge.client.transports.limits import LARGE_BYTES
from bridge.client.transports.plain_requests import PlainRequests
from bridge.client.transports.plain_responses import json_in, progress_in, result_in, result_in_message
from bridge.client.transports.streamed_reads import StreamedRead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

    from bridge.client.transports.channel import ChannelEvents, OutgoingRequest, RequestSender
    from bridge.client.transports.plain_requests import PlainRequest
    from bridge.types import Json

_T = TypeVar("_T")
_CANCELLED = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"%b"}}\n'
_REASON = b"caller cancelled"  # as in the SDK
_ID = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(\d{1,19}),|\{"(?:result|error)":.*,"jsonrpc":"2\.0","id":(\d{1,19})\}\s*\Z', re.DOTALL
)
"""IDs of responses as the official SDKs for Python and TypeScript write them."""
_TEXT_ID = re.compile(r"\d{1,19}")


class LineSender(Protocol):
    """Sends lines to a child."""

    async def send_line(self, line: bytes, outgoing: OutgoingRequest | None) -> None:
        """Send a line, and mark its request as sent."""


class _Waiting(NamedTuple):
    """Request that waits for its response."""

    request: PlainRequest
    outgoing: OutgoingRequest
    result: asyncio.Future[Json | _LongLine]


class _LongLine(NamedTuple):
    """Response that is passed on by whoever waits for it."""

    read: StreamedRead
    line: bytes

    async def rest(self) -> AsyncIterator[bytes]:
        """Return what follows the beginning of the line."""
        for start in range(LARGE_BYTES, len(self.line), LARGE_BYTES):
            yield self.line[start : start + LARGE_BYTES]


class PlainStdio:
    """Sends the plain requests of one session, and takes their responses.

    Args:
        events: Runs background tasks.
    """

    def __init__(self, events: ChannelEvents) -> None:
        self._events = events
        self._requests = PlainRequests()
        self._waiting: dict[int, _Waiting] = {}
        self._lines: LineSender | None = None
        self._params: Mapping[str, Any] | None = None

    def open(self, lines: LineSender) -> None:
        """Use a child's input."""
        self._lines = lines

    def learn(self, params: Mapping[str, Any] | None) -> None:
        """Take the parameters of a request of the handshake, whose stamps all requests have."""
        if not self._requests.version:
            self._params = params

    def sender(self, client: Client) -> RequestSender:
        """Return the function that sends requests after the handshake."""
        self._requests.learn(client.protocol_version, self._params)
        return self._sending

    def close(self) -> None:
        """Fail the waiting requests, because no response can be received any more."""
        self._lines = None
        for waiting in self._waiting.values():
            _fail(waiting.result, MCPError(CONNECTION_CLOSED, "Connection closed"))
        self._waiting.clear()

    @property
    def waiting(self) -> frozenset[int]:
        """IDs of the requests that wait for their response."""
        return frozenset(self._waiting)

    def fail(self, request_id: int, error: MCPError) -> bool:
        """Fail a request whose response is unreadable; False if there is no such request."""
        if (waiting := self._waiting.get(request_id)) is None:
            return False
        _fail(waiting.result, error)
        return True

    def takes(self, line: bytes) -> bool:
        """Handle a line with the response or progress of a plain request; False if it has anything else.

        Raises:
            ResponseTooLongError: It has too many values.
        """
        if not self._waiting:
            return False
        if (found := _ID.match(line)) is not None:
            waiting = self._waiting.get(int(found[1] or found[2]))
            return _is_passed_on(waiting, line) or _settles(waiting, result_in, line)
        try:
            return self._takes_message(json_in(line))
        except ValueError:
            return False

    def _takes_message(self, message: Any) -> bool:
        match message:
            case {"method": "notifications/progress", "params": {"progressToken": int(token)}}:
                return self._takes_progress(message, self._waiting.get(token))
            case {"id": int(id_)}:
                return _settles(self._waiting.get(id_), result_in_message, message)
            case {"id": str(text)} if _TEXT_ID.fullmatch(text):
                return _settles(self._waiting.get(int(text)), result_in_message, message)
        return False

    def _takes_progress(self, message: Json, waiting: _Waiting | None) -> bool:
        if waiting is None or (progress := progress_in(message, waiting.request)) is None:
            return False
        assert waiting.request.on_progress is not None
        self._events.start_soon(waiting.request.on_progress, *progress)
        return True

    def _sending(
        self, method: str, params: Mapping[str, Any], outgoing: OutgoingRequest, on_progress: ProgressFnT | None
    ) -> Coroutine[Any, Any, Json] | None:
        """Write a request and send it; None if the SDK must send it (`RequestSender`)."""
        if self._lines is None or (request := self._requests.write(method, params, outgoing, on_progress)) is None:
            return None
        return self._send(request, self._lines, outgoing)

    async def _send(self, request: PlainRequest, lines: LineSender, outgoing: OutgoingRequest) -> Json:
        outgoing.plain_id = request.id
        result: asyncio.Future[Json | _LongLine] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = _Waiting(request, outgoing, result)
        try:
            await lines.send_line(request.text + b"\n", outgoing)
            found = await result
            return await found.read.run(found.rest()) if isinstance(found, _LongLine) else found
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._waiting.pop(request.id, None)
            raise MCPError(CONNECTION_CLOSED, "Connection closed") from error
        except asyncio.CancelledError:
            if outgoing.sent:
                outgoing.request_id = request.id
                self._events.start_soon(_cancel, lines, request.id)
            raise
        finally:
            outgoing.cut_off = self._waiting.pop(request.id, None) is None


def _settles(waiting: _Waiting | None, read: Callable[[_T, PlainRequest], Json | None], response: _T) -> bool:
    """Set the result of a request to that in a response; False if it is no response to it."""
    if waiting is None:
        return False
    request, _, result = waiting
    try:
        found = read(response, request)
    except (MCPError, ValidationError) as error:
        _fail(result, error)
        return True
    if found is not None and not result.done():
        result.set_result(found)
    return found is not None


def _is_passed_on(waiting: _Waiting | None, line: bytes) -> bool:
    """Leave a long response to its request, which passes it on; False if it has to be read here."""
    if waiting is None or len(line) <= LARGE_BYTES or waiting.result.done():
        return False
    try:
        read = StreamedRead.begin(line[:LARGE_BYTES], len(line), waiting.request, waiting.outgoing)
    except Exception as error:  # noqa: BLE001 - raised by whoever waits for the result
        _fail(waiting.result, error)
        return True
    if read is not None:
        waiting.result.set_result(_LongLine(read, line))
    return read is not None


def _fail(result: asyncio.Future[Json | _LongLine], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
        result.exception()  # else asyncio would log it if the request is cancelled meanwhile


async def _cancel(lines: LineSender, request_id: int) -> None:
    """Notify the server that a request is cancelled."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await lines.send_line(_CANCELLED % (request_id, _REASON), None)

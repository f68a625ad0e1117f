"""Lines of a child's pipes: each line is a message.

A request records whether it was sent, the end of the child is reported immediately, and output that is not a message is
kept for errors. The request of a response that cannot be parsed, such as one with half a surrogate pair or very deep
nesting, is found without parsing it, so that its caller need not wait until a timeout.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from pydantic import ValidationError

from bridge.client.transports.link import Cause, TransportFailedError
from bridge.client.transports.process import LINES_OF_A_TURN
from bridge.client.transports.received_data import LARGE_BYTES, MAX_MESSAGE_BYTES, ResponseTooLongError
from bridge.client.transports.streamed_reads import StreamedRead
from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import ProtocolError
from bridge.protocol.peer import PeerLostError
from bridge.protocol.versions import PARSE_ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from collections.abc import Set as AbstractSet

    from bridge.client.transports.link import LinkEvents
    from bridge.client.transports.process import ChildProcess
    from bridge.protocol.peer import PendingRequest

_READ_BYTES = 65536
_MAX_NOISE_BYTES = 256 * 1024
"""Maximum bytes of other output before the first message, such as a banner or an installer's progress."""
_KEPT_BYTES = 512
"""Bytes of both ends of a response that is too long, by which its request is found."""
_MAX_DROPPED_LENGTHS = 16
"""Maximum length of a response that is dropped because it is too long, in multiples of `MAX_MESSAGE_BYTES`."""
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_MEMBER = rb'"(?:result|error)"\s*:'
_HEAD = re.compile(rb"\s*\{\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*,\s*%b" % (_VERSION, _ID, _ID, _VERSION, _MEMBER))
_TAIL = re.compile(rb",\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*\}\s*\Z" % (_VERSION, _ID, _ID, _VERSION))
_RESPONSE = re.compile(rb"\s*\{\s*(?:(?:%b|%b)\s*,\s*){0,2}%b" % (_VERSION, _ID, _MEMBER))
_POSITION = re.compile(r" at line \d+ column \d+")
_TAIL_BYTES = 200
_MAX_REASON_CHARS = 200


class NoProtocolError(TransportFailedError):
    """A child's output is not the protocol."""

    def __init__(self) -> None:
        hint = "check the command: log output must go to standard error"
        super().__init__(Cause("this is not an MCP server: its output is not JSON-RPC", hint, is_permanent=True))


class LineTooLongError(TransportFailedError):
    """A line of a child's output exceeds the limit."""

    def __init__(self) -> None:
        reason = f"a line of its output is longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB"
        super().__init__(Cause(reason, "split its results: each message is one line"))


class _CutLine(bytes):
    """The beginning and the end of a response that is too long."""

    __slots__ = ()


class LineWriter:
    """Writes messages as lines of a child's input, in their order.

    Args:
        child: The child.
        events: Notified if its input is closed.
    """

    def __init__(self, child: ChildProcess, events: LinkEvents) -> None:
        self._child = child
        self._events = events
        self._lines, self._waiting = anyio.create_memory_object_stream[tuple[bytes, "PendingRequest | None"]](0)
        self._is_blocked = False  # while the child does not read
        self._is_direct = runs_on_asyncio()  # trio leaves half a line where a write is cancelled

    async def run(self) -> None:
        """Write the lines that `write` leaves to it, until `finish`."""
        with suppress(PeerLostError), self._waiting:
            async for text, request in self._waiting:
                await self._write(text, request)

    def finish(self) -> None:
        """Let `run` end after the lines that wait."""
        self._lines.close()

    async def write(self, text: bytes, request: PendingRequest | None = None) -> None:
        """Write a message, and mark its request as sent; without a turn of the event loop unless other lines wait.

        Raises:
            PeerLostError: The child's input is closed.
        """
        if self._is_direct and not self._is_blocked and self._lines.statistics().tasks_waiting_receive:
            await self._write(text, request)
            return
        try:
            await self._lines.send((text, request))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise PeerLostError("the server's input is closed") from error

    async def _write(self, text: bytes, request: PendingRequest | None) -> None:
        try:
            if self._is_blocked:
                await self._child.stdin.send(b"")  # waits for the child
            if request is not None:
                request.is_sent = True
            self._is_blocked = True
            await self._child.stdin.send(text + b"\n")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            self._events.peer_ended()
            await self._child.stdout.aclose()  # the reader would wait for responses that cannot arrive
            raise PeerLostError("the server's input is closed") from error
        self._is_blocked = False


class LineReader:
    """Reads messages from the lines of a child's output, in one task.

    Args:
        child: The child.
        events: Receives the messages.
    """

    def __init__(self, child: ChildProcess, events: LinkEvents) -> None:
        self._child = child
        self._events = events
        self._noise_bytes: int | None = 0  # None after the first message
        self._lines: deque[bytes] = deque()
        self._part = bytearray()  # of an incomplete line
        self._dropped_lengths = 0

    async def run(self) -> None:
        """Read until the child closes its output, or its output is not the protocol."""
        is_full = False
        try:
            while True:
                while self._lines:
                    self._read(self._lines.popleft())
                    await self._events.delivered()
                    self._check_noise()
                    if len(self._lines) % LINES_OF_A_TURN == 1:
                        await anyio.lowlevel.checkpoint()
                self._check_part()
                if is_full:
                    await anyio.lowlevel.checkpoint()  # a full pipe is read without waiting
                chunk = await self._child.stdout.receive(_READ_BYTES)
                is_full = len(chunk) == _READ_BYTES
                self._split(chunk)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self._events.peer_ended()
        except (TransportFailedError, ResponseTooLongError) as error:
            self._events.stream_lost(error)  # over pipes, no other error follows
        self._events.fail_pending(PeerLostError("the server's output has ended"))

    def _check_noise(self) -> None:
        if self._noise_bytes is not None and self._noise_bytes > _MAX_NOISE_BYTES:
            raise NoProtocolError

    def _check_part(self) -> None:
        """Check an incomplete line: it may be a long message, or noise."""
        if len(self._part) > MAX_MESSAGE_BYTES:
            self._dropped_lengths += 1
            is_response = self._noise_bytes is None and looks_like_response(bytes(self._part[:_KEPT_BYTES]))
            if not is_response or self._dropped_lengths > _MAX_DROPPED_LENGTHS:
                raise LineTooLongError
            del self._part[_KEPT_BYTES:-_KEPT_BYTES]
        may_be_noise = self._noise_bytes is not None and len(self._part) > _MAX_NOISE_BYTES
        if may_be_noise and not self._part[:_MAX_NOISE_BYTES].lstrip().startswith(b"{"):
            raise NoProtocolError

    def _split(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines and self._part:
            self._part += lines[0]
            lines[0] = (_CutLine if self._dropped_lengths else bytes)(self._part)
            self._part.clear()
            self._dropped_lengths = 0
        self._part += rest
        self._lines.extend(lines)

    def _read(self, line: bytes) -> None:
        if isinstance(line, _CutLine):
            self._unreadable(line, ValueError(f"longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB"))
        elif not self._is_streamed(line):
            try:
                self._events.receive(line)
                self._noise_bytes = None
            except ValueError as error:
                self._unreadable(line, error)

    def _is_streamed(self, line: bytes) -> bool:
        """Leave a long response to its request, which passes it on in parts; False if it has to be read here."""
        request = self._events.responded(line) if len(line) > LARGE_BYTES else None
        if request is None or request.stream is None or request.is_over:
            return False
        try:
            read = StreamedRead.begin(line[:LARGE_BYTES], len(line), request)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the result
            request.fail(error)
            return True
        if read is not None:
            request.defer(partial(read.settle, _rest(line)))
        return read is not None

    def _unreadable(self, line: bytes, error: ValueError) -> None:
        """Fail the request that an unreadable response belongs to, which would wait until its timeout; log the rest."""
        if self._noise_bytes is not None:
            self._noise_bytes += len(line) + 1
        why = ""
        if looks_like_response(line):
            pending = self._events.pending()
            request = pending.get(response_id(line, pending.keys()) or -1)
            if request is not None:
                request.fail(ProtocolError(PARSE_ERROR, f"its response is unreadable: {reason_of(error)}"))
                return
            why = f", unreadable as a message: {reason_of(error)}"
        self._child.log_line(f"(on standard output{why}) {line.decode(errors='replace')}" if line.strip() else "")


async def _rest(line: bytes) -> AsyncIterator[bytes]:
    """Return what follows the beginning of a long line."""
    for start in range(LARGE_BYTES, len(line), LARGE_BYTES):
        yield line[start : start + LARGE_BYTES]


def looks_like_response(line: bytes) -> bool:
    """True if a line begins as a response of JSON-RPC, in any order of its members."""
    return _RESPONSE.match(line) is not None


def response_id(line: bytes, waiting: AbstractSet[int]) -> int | None:
    """Return the ID of the request that a line responds to.

    Args:
        line: A line that `looks_like_response`.
        waiting: IDs of the requests without a response.

    Returns:
        The ID that stands before or after the result, or else the only one that waits; None if it is unknown.
    """
    match = _HEAD.match(line) or _TAIL.search(line[-_TAIL_BYTES:])
    if match is not None:
        request_id = int(match[1] or match[2])
        return request_id if request_id in waiting else None
    return next(iter(waiting)) if len(waiting) == 1 else None


def reason_of(error: ValueError) -> str:
    """Describe an error of the parser, without the text that was parsed and the position, which depends on IDs."""
    if isinstance(error, ValidationError):
        reason = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
    else:
        reason = str(error)
    return " ".join(_POSITION.sub("", reason).split())[:_MAX_REASON_CHARS]

"""Message streams over a child's pipes, as a transport of the SDK.

Unlike in the SDK's transport, each request records whether it was sent, the end of the child is reported immediately,
and output that is not a message is kept for errors.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

import anyio
import anyio.lowlevel
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from bridge.client.transports.channel import Cause, TransportFailedError, current_request
from bridge.client.transports.limits import (
    LARGE_BYTES,
    MAX_MESSAGE_BYTES,
    ResponseTooLongError,
    large_message,
)
from bridge.client.transports.unreadable import looks_like_response, reason_of, response_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectSendStream

    from bridge.client.transports.channel import OutgoingRequest
    from bridge.client.transports.plain_stdio import PlainStdio
    from bridge.client.transports.process import ChildProcess

_FLUSH_SECONDS = 0.5
_READ_BYTES = 65536
_MAX_NOISE_BYTES = 256 * 1024
"""Maximum bytes of other output before the first message, such as a banner or an installer's progress."""
_KEPT_BYTES = 512
"""Bytes of both ends of a response that is too long, by which its request is found."""
_MAX_DROPPED_LENGTHS = 16
"""Maximum length of a response that is dropped because it is too long, in multiples of `MAX_MESSAGE_BYTES`."""


class NoProtocolError(TransportFailedError):
    """A child's output is not the protocol."""

    def __init__(self) -> None:
        hint = "check the command: log output must go to standard error"
        super().__init__(Cause("this is no MCP server: its output is no JSON-RPC", hint, is_permanent=True))


class LineTooLongError(TransportFailedError):
    """A line of a child's output exceeds the limit."""

    def __init__(self) -> None:
        reason = f"a line of its output is longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB"
        super().__init__(Cause(reason, "split its results: each message is one line"))


class _CutLine(bytes):
    """The beginning and the end of a response that is too long."""

    __slots__ = ()


class LineWriter(ObjectSendStream[SessionMessage]):
    """Stream that the SDK writes messages to; encodes each as a line of the child's input."""

    def __init__(
        self,
        child: ChildProcess,
        lines: MemoryObjectSendStream[tuple[bytes, OutgoingRequest | None]],
        ended: Callable[[], None],
        plain: PlainStdio | None,
    ) -> None:
        self._child = child
        self._lines = lines
        self._ended = ended
        self._plain = plain
        self._is_blocked = False  # while the child does not read
        self.waiting: set[int] = set()
        """IDs of the requests of the SDK that have no response."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        message, outgoing = item.message, current_request.get()
        if outgoing is not None and outgoing.sent and isinstance(message, JSONRPCNotification):
            outgoing.request_id = (message.params or {}).get(
                "requestId"
            )  # the only notification of a sent request is its cancellation
        if isinstance(message, JSONRPCRequest):
            if isinstance(message.id, int):
                self.waiting.add(message.id)
            if self._plain is not None:
                self._plain.learn(message.params)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.waiting.discard((message.params or {}).get("requestId", -1))
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._lines.send((text.encode() + b"\n", outgoing))

    async def send_line(self, line: bytes, outgoing: OutgoingRequest | None) -> None:
        """Send a line of a plain request, without a turn of the event loop unless other lines wait; on asyncio.

        Raises:
            BrokenResourceError: The child's input is closed.
            ClosedResourceError: The stream is closed.
        """
        if self._is_blocked or not self._lines.statistics().tasks_waiting_receive:
            await self._lines.send((line, outgoing))
        else:
            await self.write(line, outgoing)

    async def write(self, line: bytes, outgoing: OutgoingRequest | None) -> None:
        """Write a line to the child's input.

        Raises:
            BrokenResourceError: It is closed.
        """
        try:
            if self._is_blocked:
                await self._child.stdin.send(b"")  # waits for the child
            if outgoing is not None:
                outgoing.sent = True
            self._is_blocked = True
            await self._child.stdin.send(line)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            self._ended()
            await self._child.stdout.aclose()  # the reader would wait for responses that cannot arrive
            raise anyio.BrokenResourceError from error
        self._is_blocked = False

    async def aclose(self) -> None:
        """Close the stream; the child's input stays open until the lines are flushed."""
        self._lines.close()


class LineReader(ObjectReceiveStream[SessionMessage | Exception]):
    """Stream that the SDK reads messages from; decodes the lines of the child's output.

    The SDK's reader reads the pipe itself: a task between the two would add a turn of the event loop to each call.
    """

    def __init__(
        self,
        child: ChildProcess,
        ended: Callable[[], None],
        refused: Callable[[Exception], None],
        plain: PlainStdio | None,
        waiting: set[int],
    ) -> None:
        self._child = child
        self._plain = plain
        self._waiting = waiting
        self._ended = ended
        self._refused = refused
        self._noise_bytes: int | None = 0  # None after the first message
        self._lines: deque[bytes] = deque()
        self._part = bytearray()  # of an incomplete line
        self._dropped_lengths = 0

    async def receive(self) -> SessionMessage | Exception:
        """Receive the next message.

        Raises:
            EndOfStream: The child closed its output, or its output is not the protocol.
        """
        is_full = False
        while True:
            while self._lines:
                if (message := self._read(self._lines.popleft())) is not None:
                    self._noise_bytes = None
                    return message
                self._check_noise()
            self._check_part()
            if is_full:
                await anyio.lowlevel.checkpoint()  # a full pipe is read without waiting
            try:
                chunk = await self._child.stdout.receive(_READ_BYTES)
                is_full = len(chunk) == _READ_BYTES
                self._split(chunk)
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                self._ended()
                if self._plain is not None:
                    self._plain.close()
                raise anyio.EndOfStream from None

    def _check_noise(self) -> None:
        if self._noise_bytes is not None and self._noise_bytes > _MAX_NOISE_BYTES:
            self._refuse(NoProtocolError())

    def _check_part(self) -> None:
        """Check an incomplete line: it may be a long message, or noise."""
        if len(self._part) > MAX_MESSAGE_BYTES:
            self._dropped_lengths += 1
            is_response = self._noise_bytes is None and looks_like_response(bytes(self._part[:_KEPT_BYTES]))
            if not is_response or self._dropped_lengths > _MAX_DROPPED_LENGTHS:
                self._refuse(LineTooLongError())
            del self._part[_KEPT_BYTES:-_KEPT_BYTES]
        may_be_noise = self._noise_bytes is not None and len(self._part) > _MAX_NOISE_BYTES
        if may_be_noise and not self._part[:_MAX_NOISE_BYTES].lstrip().startswith(b"{"):
            self._refuse(NoProtocolError())

    def _refuse(self, error: Exception) -> NoReturn:
        self._lines.clear()
        self._part.clear()
        self._refused(error)
        if self._plain is not None:
            self._plain.close()
        raise anyio.EndOfStream

    def _split(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        if lines and self._part:
            self._part += lines[0]
            lines[0] = (_CutLine if self._dropped_lengths else bytes)(self._part)
            self._part.clear()
            self._dropped_lengths = 0
        self._part += rest
        self._lines.extend(lines)

    def _read(self, line: bytes) -> SessionMessage | None:
        if isinstance(line, _CutLine):
            return self._unreadable(line, ValueError(f"longer than {MAX_MESSAGE_BYTES / 2**20:g} MiB"))
        try:
            if self._plain is not None and self._plain.takes(line):
                return None
            if len(line) > LARGE_BYTES:
                message = large_message(line)
            else:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ResponseTooLongError as error:
            self._refuse(error)
        except ValueError as error:
            return self._unreadable(line, error)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and isinstance(message.id, int):
            self._waiting.discard(message.id)
        return SessionMessage(message)

    def _unreadable(self, line: bytes, error: ValueError) -> SessionMessage | None:
        """Fail the request that an unreadable response belongs to, which would wait until its timeout; log the rest."""
        if self._noise_bytes is not None:
            self._noise_bytes += len(line) + 1
        why = ""
        if looks_like_response(line):
            why = f", unreadable as a message: {reason_of(error)}"
            if (answer := self._failing(line, f"its response is unreadable: {reason_of(error)}")) is not None:
                return answer
        self._child.log_line(f"(on standard output{why}) {line.decode(errors='replace')}" if line.strip() else "")
        return None

    def _failing(self, line: bytes, problem: str) -> SessionMessage | None:
        """Fail the request of an unreadable response; None if a plain request failed, or the request is unknown."""
        plain = frozenset() if self._plain is None else self._plain.waiting
        request_id = response_id(line, self._waiting | plain)
        if request_id is None:
            return None
        if self._plain is not None and self._plain.fail(request_id, MCPError(PARSE_ERROR, problem)):
            return None
        self._waiting.discard(request_id)
        data = ErrorData(code=PARSE_ERROR, message=problem)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=data))

    async def aclose(self) -> None:
        """Fail plain requests; the child continues."""
        if self._plain is not None:
            self._plain.close()


@asynccontextmanager
async def stdio_streams(
    child: ChildProcess,
    ended: Callable[[], None],
    refused: Callable[[Exception], None],
    plain: PlainStdio | None = None,
) -> AsyncIterator[tuple[LineReader, LineWriter]]:
    """Open the message streams of a child.

    Args:
        child: The child; it is not ended.
        ended: Called when its input or output is closed.
        refused: Called when its output is not the protocol, or exceeds the limits; nothing more is read.
        plain: Sends plain requests, and takes their responses; None if the SDK sends all requests.
    """
    lines, written = anyio.create_memory_object_stream[tuple[bytes, "OutgoingRequest | None"]](0)
    flushed = anyio.Event()
    writer = LineWriter(child, lines, ended, plain)
    if plain is not None:
        plain.open(writer)

    async def write() -> None:
        try:
            with written:
                async for line, outgoing in written:
                    await writer.write(line, outgoing)
        except anyio.BrokenResourceError:
            pass
        finally:
            flushed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        try:
            yield LineReader(child, ended, refused, plain, writer.waiting), writer
        finally:
            lines.close()
            with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
                await flushed.wait()
            tasks.cancel_scope.cancel()

"""stdio transport: one client, one JSON message a line (MCP, "Transports", stdio).

    bytes ─> lines ─┬> messages ─┬> the SDK ──────┬> lines ─> bytes
                    │            ╰> the fast path ┤
                    ╰> invalid: an error response ╯

Every line is parsed once. The SDK is imported when a message first needs it. The first request selects the era of the
connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from bridge.protocol.messages import (
    MalformedMessageError,
    id_of_request,
    is_request,
    malformed_message_error,
    read_message,
    too_many_values,
    value_bounds,
)
from bridge.protocol.versions import INVALID_REQUEST
from bridge.server.fast_path import internal_error_message
from bridge.server.stdio.fast import FastStdio
from bridge.server.stdio.pipes import open_input, open_output
from bridge.server.stdio.process import Watchdog
from bridge.server.tasks.lifespan import running_tasks
from bridge.telemetry.switch import observed_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from bridge.protocol.messages import MessageId
    from bridge.server.publisher import Publisher
    from bridge.server.stdio.pipes import InputPipe, OutputPipe
    from bridge.server.stdio.process import ProtocolStreams
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Default maximum length of a message, as over HTTP."""
ANSWER_SECONDS = 1.0
"""Seconds for which calls continue after the input has closed, since a script may pipe requests in."""
CLEANUP_SECONDS = 1.5
"""Seconds for which cancelled calls may clean up."""
KEPT_BYTES = 1024
"""Bytes that are kept of each end of a line over the limit."""


def serve_stdio(
    publisher: Publisher,
    streams: ProtocolStreams,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    fast_path: bool = True,
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
    last_act: Callable[[], None] = lambda: None,
) -> None:
    """Serve one client over stdio, in the main thread of a process.

    It returns, for the process to exit with 0, when the input closes, on SIGTERM and SIGINT, when the reader of the
    output has closed it, and when the parent process has ended. Running calls are cancelled, and may clean up for
    `CLEANUP_SECONDS`; after the end of the input they may first finish within `ANSWER_SECONDS`. If a call cannot be
    stopped, the `Watchdog` ends the process.

    Args:
        publisher: The tools.
        streams: The result of `bridge.server.stdio.process.take_standard_streams`.
        max_line_bytes: Maximum length of a message; a longer one is refused without being kept in memory.
        fast_path: True to answer plain requests without the SDK.
        lifespan: Context that is entered before the first message is read.
        last_act: Called from any thread if the process has to exit before the lifespan has ended.
    """

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = StdioServer(publisher, streams, max_line_bytes=max_line_bytes, fast_path=fast_path)
        opening = anyio.CancelScope()

        def stop() -> None:
            opening.cancel()
            server.stop()

        def stop_from_thread() -> None:
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(stop)

        watchdog = Watchdog(streams.input_fd, stop_from_thread, last_act)
        async with AsyncExitStack() as stack:
            with opening:
                await stack.enter_async_context(lifespan())
                await stack.enter_async_context(running_tasks(publisher))
            with observed_session("stdio"):
                await server.serve(on_ending=watchdog.end)

    anyio.run(serve, backend="asyncio")


class StdioServer:
    """One connection over two pipes, on an asyncio loop."""

    def __init__(
        self,
        publisher: Publisher,
        streams: ProtocolStreams,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
        fast_path: bool = True,
    ) -> None:
        self._publisher = publisher
        self._streams = streams
        self._max_line_bytes = max_line_bytes
        self._bounds = value_bounds(max_line_bytes)
        self._lines = LineSplitter(max_line_bytes)
        self._to_sdk, self._for_sdk = anyio.create_memory_object_stream[dict[str, Any]](math.inf)
        self._unanswered: Counter[MessageId] = Counter()
        """Number of unanswered requests by id, since a client may reuse an id."""
        self._ending = anyio.Event()
        self._settled = anyio.Event()
        self._sdk_done = anyio.Event()
        self._fast = FastStdio(publisher, self._write, self._answered, self._send_to_sdk) if fast_path else None
        self._input: InputPipe
        self._output: OutputPipe

    async def serve(self, on_ending: Callable[[], None] = lambda: None) -> None:
        """Serve until the input closes, the output is broken, or `stop` is called."""
        self._input = open_input(self._streams.input_fd, self._receive, self._close)
        self._output = open_output(self._streams.output_fd, self._input.resume, self.stop)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._serve_with_sdk)
                await self._ending.wait()
                with anyio.move_on_after(ANSWER_SECONDS):
                    await self._settled.wait()
                on_ending()
                self._input.close()
                # At the end of its input, the SDK cancels its running calls.
                self._to_sdk.close()
                with anyio.move_on_after(CLEANUP_SECONDS):
                    if self._fast is not None:
                        self._fast.cancel()
                        await self._fast.ended()
                    await self._sdk_done.wait()
                    await self._output.drained()
                if self._fast is not None:
                    self._fast.answer_unfinished()
                tasks.cancel_scope.cancel()
        finally:
            self._input.close()
            self._output.close()

    def stop(self) -> None:
        """Begin to end at once; call it on the loop."""
        self._ending.set()
        self._settled.set()

    def _receive(self, data: bytes) -> None:
        self._take(self._lines.feed(data))
        if self._output.is_full:
            # Do not read further requests from a client that does not read responses.
            self._input.pause()

    def _close(self) -> None:
        self._take(self._lines.end())
        self._ending.set()
        self._settle()

    def _settle(self) -> None:
        if self._ending.is_set() and not self._unanswered:
            self._settled.set()

    def _take(self, lines: list[bytes | LongLine]) -> None:
        for line in lines:
            try:
                message = self._read(line)
            except MalformedMessageError as error:
                self._output.write(malformed_message_error(error) + b"\n")
                continue
            if message is None:
                continue
            try:
                self._handle(message)
            except Exception as error:  # noqa: BLE001 - logged and answered; later lines are still read
                self._fail(message, error)

    def _read(self, line: bytes | LongLine) -> Json | None:
        if isinstance(line, bytes):
            if (excess := self._bounds.excess(line)) is not None:
                request = id_of_request(line[:KEPT_BYTES], line[-KEPT_BYTES:])
                raise MalformedMessageError(INVALID_REQUEST, too_many_values(excess), request)
            return read_message(line)
        problem = (
            f"a message may have {self._max_line_bytes} bytes at most; bridge serve --max-request-bytes allows more"
        )
        raise MalformedMessageError(INVALID_REQUEST, problem, id_of_request(*line))

    def _handle(self, message: Json) -> None:
        if is_request(message):
            # A subscription is answered at its end only: do not wait for it.
            if message["method"] != "subscriptions/listen":
                self._unanswered[message["id"]] += 1
        elif message.get("method") == "notifications/cancelled":
            cancelled = (message.get("params") or {}).get("requestId")
            if isinstance(cancelled, int | str):
                self._count_down(cancelled)
        if self._fast is None or not self._fast.handles(message):
            self._send_to_sdk(message)

    def _send_to_sdk(self, message: Json) -> None:
        for each in () if self._fast is None else self._fast.opening():
            self._to_sdk.send_nowait(each)
        self._to_sdk.send_nowait(message)

    def _fail(self, message: Json, error: Exception) -> None:
        if is_request(message):
            self._output.write(internal_error_message(message, error) + b"\n")
            self._answered(message["id"])
        else:
            _logger.error("a notification or response could not be handled", exc_info=error)

    def _write(self, line: bytes) -> None:
        self._output.write(line)

    def _answered(self, message_id: MessageId) -> None:
        self._count_down(message_id)
        self._settle()

    def _count_down(self, message_id: MessageId) -> None:
        left = self._unanswered.pop(message_id, 0) - 1
        if left > 0:
            self._unanswered[message_id] = left

    def _answered_by_sdk(self, message_id: MessageId | None) -> None:
        if self._fast is not None:
            self._fast.answered_by_sdk(message_id)
        if message_id is not None:
            self._answered(message_id)

    async def _serve_with_sdk(self) -> None:
        try:
            first = await self._for_sdk.receive()
            from bridge.server.stdio.sdk_streams import serve_with_sdk  # noqa: PLC0415 - the SDK takes most of a second

            silenced: set[MessageId] = set() if self._fast is None else self._fast.silenced
            await serve_with_sdk(self._publisher, first, self._for_sdk, self._output, self._answered_by_sdk, silenced)
        except anyio.EndOfStream:
            pass
        finally:
            self._for_sdk.close()
            self._sdk_done.set()


class LongLine(NamedTuple):
    """A line over the limit, of which only the ends are kept."""

    beginning: bytes
    end: bytes


class LineSplitter:
    """Splits bytes into lines; of a line over the limit, only both ends are kept."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._line = bytearray()
        """The line that has not ended yet, or both ends of it."""
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> list[bytes | LongLine]:
        """Return the lines that end within ``data``, without their newlines."""
        *ended, rest = data.split(b"\n")
        lines = [self._ended(part) for part in ended]
        self._keep(rest)
        return lines

    def end(self) -> list[bytes | LongLine]:
        """Return the rest after the last newline, if there is any."""
        return [self._ended(b"")] if self._line else []

    def _ended(self, part: bytes) -> bytes | LongLine:
        is_long = len(self._line) + self._dropped_bytes + len(part) > self._max_line_bytes
        if self._line:
            self._keep(part)
            part = bytes(self._line)
            self._line.clear()
            self._dropped_bytes = 0
        return LongLine(part[:KEPT_BYTES], part[-KEPT_BYTES:]) if is_long else part

    def _keep(self, part: bytes) -> None:
        self._line += part
        length_bytes = len(self._line)
        if length_bytes + self._dropped_bytes > self._max_line_bytes and length_bytes > 2 * KEPT_BYTES:
            del self._line[KEPT_BYTES:-KEPT_BYTES]
            self._dropped_bytes += length_bytes - len(self._line)

"""stdio transport: one client, one JSON message a line (MCP, "Transports", stdio).

    bytes ─> lines ─┬> messages ─> StreamConnection ─┬> lines ─> bytes
                    ╰> invalid: an error response ───╯

Every line is parsed once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from bridge.protocol.messages import (
    MalformedMessageError,
    id_of_request,
    malformed_message_error,
    read_message,
    too_many_values,
    value_bounds,
)
from bridge.protocol.versions import INVALID_REQUEST
from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.exchange import LocalOrigin
from bridge.server.lifespans import lifespans_open, running_tasks
from bridge.server.observed import dispatch_of
from bridge.server.stdio.pipes import open_input, open_output
from bridge.server.stdio.process import Watchdog
from bridge.telemetry.current import observed_session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from bridge.server.core import ServerCore
    from bridge.server.stdio.pipes import InputPipe, OutputPipe
    from bridge.server.stdio.process import ProtocolStreams
    from bridge.types import Json

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Default maximum length of a message, as over HTTP."""
ANSWER_SECONDS = 1.0
"""Seconds for which calls continue after the input has closed and a start has ended, since a script may pipe requests
in."""
CLEANUP_SECONDS = 1.5
"""Seconds for which cancelled calls may clean up."""
KEPT_BYTES = 1024
"""Bytes that are kept of each end of a line over the limit."""


def serve_stdio(
    server: ServerCore,
    streams: ProtocolStreams,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
    last_act: Callable[[], None] = lambda: None,
) -> None:
    """Serve one client over stdio, in the main thread of a process.

    It returns, for the process to exit with 0, when the input closes, on SIGTERM and SIGINT, when the reader of the
    output has closed it, and when the parent process has ended. Running calls are cancelled, and may clean up for
    `CLEANUP_SECONDS`; after the end of the input they may first finish within `ANSWER_SECONDS`. If a call cannot be
    stopped, the `Watchdog` ends the process.

    Args:
        server: The server.
        streams: The result of `bridge.server.stdio.process.take_standard_streams`.
        max_line_bytes: Maximum length of a message; a longer one is refused without being kept in memory.
        lifespan: Context that is entered before the first message is read.
        last_act: Called from any thread if the process has to exit before the lifespan has ended.
    """

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        serving = StdioServer(server, streams, max_line_bytes=max_line_bytes)
        opening = anyio.CancelScope()

        def stop() -> None:
            opening.cancel()
            serving.stop()

        def stop_from_thread() -> None:
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(stop)

        watchdog = Watchdog(streams.input_fd, stop_from_thread, last_act)
        async with AsyncExitStack() as stack:
            with opening:
                await stack.enter_async_context(lifespan())
                await stack.enter_async_context(lifespans_open(server.features, server.lifespan))
                await stack.enter_async_context(running_tasks(server))
            with observed_session("stdio"):
                await serving.serve(on_ending=watchdog.end)

    anyio.run(serve, backend="asyncio")


class StdioServer:
    """One connection over two pipes, on an asyncio loop."""

    def __init__(self, server: ServerCore, streams: ProtocolStreams, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._streams = streams
        self._max_line_bytes = max_line_bytes
        self._bounds = value_bounds(max_line_bytes)
        self._lines = LineSplitter(max_line_bytes)
        self._connection = StreamConnection(
            server,
            dispatch_of(server),
            LocalOrigin(EVERYTHING),
            self._write,
            self._drained,
            write_parts=self._write_parts,
        )
        self._start = server.features.start
        self._ending = anyio.Event()
        self._answering = anyio.CancelScope()
        self._input: InputPipe
        self._output: OutputPipe

    async def serve(self, on_ending: Callable[[], None] = lambda: None) -> None:
        """Serve until the input closes, the output is broken, or `stop` is called."""
        self._input = open_input(self._streams.input_fd, self._receive, self._close)
        self._output = open_output(self._streams.output_fd, self._input.resume, self.stop)
        try:
            async with self._connection.running():
                await self._ending.wait()
                with self._answering:
                    if self._start is not None:
                        await self._start.ended()
                    self._answering.deadline = anyio.current_time() + ANSWER_SECONDS
                    await self._connection.settled()
                on_ending()
                self._input.close()
                with anyio.move_on_after(CLEANUP_SECONDS):
                    self._connection.cancel()
                    await self._connection.ended()
                    await self._output.drained()
                self._connection.answer_unfinished()
        finally:
            self._input.close()
            self._output.close()

    def stop(self) -> None:
        """Begin to end at once; call it on the loop."""
        self._ending.set()
        self._answering.cancel()

    def _receive(self, data: bytes) -> None:
        self._take(self._lines.feed(data))
        if self._output.is_full:
            # Do not read further requests from a client that does not read responses.
            self._input.pause()

    def _close(self) -> None:
        self._take(self._lines.end())
        self._ending.set()

    def _take(self, lines: list[bytes | LongLine]) -> None:
        for line in lines:
            try:
                message = self._read(line)
            except MalformedMessageError as error:
                self._write(malformed_message_error(error))
                continue
            if message is not None:
                self._connection.receive(message)

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

    def _write(self, message: bytes) -> None:
        self._output.write(message + b"\n")

    def _write_parts(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._output.write(part)
        self._output.write(b"\n")

    async def _drained(self) -> None:
        if self._output.is_full:
            await self._output.drained()


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

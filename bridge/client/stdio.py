"""Stdio: a child's pipes as the pair of streams that the SDK's client wants.

Beside what the SDK's own does: a request is known to be sent or not (see `bridge.client.attempt`), a child that ends is
told at once, and what is no message of the protocol is kept for the error that may follow.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bridge.client.attempt import current_attempt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from bridge.client.attempt import Attempt
    from bridge.client.process import ChildProcess

    Incoming = SessionMessage | Exception

_logger = logging.getLogger("bridge.client")
_FLUSH_SECONDS = 0.5


class LineWriter:
    """Messages to lines; the child's input, as the SDK's client writes to it."""

    def __init__(self, lines: MemoryObjectSendStream[tuple[bytes, Attempt | None]]) -> None:
        self._lines = lines

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._lines.send((text.encode() + b"\n", current_attempt.get()))

    async def aclose(self) -> None:
        """Write no more."""
        self._lines.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def stdio_streams(
    child: ChildProcess, ended: Callable[[], None]
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], LineWriter]]:
    """The streams to and from a child, as a transport of the SDK.

    Args:
        child: The child; it is left running.
        ended: Called when it can no longer be talked to.
    """
    messages, received = anyio.create_memory_object_stream[Any](0)
    lines, written = anyio.create_memory_object_stream[tuple[bytes, "Attempt | None"]](0)
    flushed = anyio.Event()

    async def read() -> None:
        try:
            with messages:
                await _read_messages(child, messages)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            pass
        finally:
            ended()

    async def write() -> None:
        try:
            with written:
                async for line, attempt in written:
                    if attempt is not None:
                        attempt.sent = True
                    await child.stdin.send(line)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            messages.close()
            ended()
        finally:
            flushed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield received, LineWriter(lines)
        finally:
            lines.close()
            with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
                await flushed.wait()
            received.close()
            tasks.cancel_scope.cancel()


async def _read_messages(child: ChildProcess, messages: MemoryObjectSendStream[Any]) -> None:
    parts: list[bytes] = []  # of a line that has not ended yet
    async for chunk in child.stdout:
        *lines, rest = chunk.split(b"\n")
        if lines and parts:
            lines[0] = b"".join((*parts, lines[0]))
            parts.clear()
        parts.append(rest)
        for line in lines:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                child.heard(f"(on standard output) {line.decode(errors='replace')}" if line.strip() else "")
                continue
            await messages.send(SessionMessage(message))

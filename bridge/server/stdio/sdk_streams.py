"""The SDK's streams of a stdio connection. Importing this module imports the SDK."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.lowlevel import checkpoint
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from bridge.protocol.messages import MessageId, is_request
from bridge.protocol.versions import INTERNAL_ERROR
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.streams.memory import MemoryObjectReceiveStream

    from bridge.server.publisher import Publisher
    from bridge.server.stdio.pipes import OutputPipe
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")


async def serve_with_sdk(
    publisher: Publisher,
    first: Json,
    others: MemoryObjectReceiveStream[Json],
    output: OutputPipe,
    on_answer: Callable[[MessageId | None], None],
    silenced: set[MessageId],
) -> None:
    """Serve a connection by the SDK, in the era of its first request, until the messages end.

    The next response to each silenced request is not written.
    """
    server = publisher.server
    outbox = _Outbox(output, on_answer, silenced)
    await server.run(_Inbox(first, others), outbox, server.create_initialization_options())


class _Inbox(ObjectReceiveStream[SessionMessage | Exception]):
    """The SDK's ``ReadStream`` over parsed messages."""

    def __init__(self, first: Json, others: MemoryObjectReceiveStream[Json]) -> None:
        self._first: Json | None = first
        self._others = others

    async def receive(self) -> SessionMessage | Exception:
        message, self._first = self._first, None
        return SessionMessage(_typed(await self._others.receive() if message is None else message))

    async def aclose(self) -> None:
        self._others.close()


class _Outbox(ObjectSendStream[SessionMessage]):
    """The SDK's ``WriteStream`` that writes lines."""

    def __init__(
        self, output: OutputPipe, on_answer: Callable[[MessageId | None], None], silenced: set[MessageId]
    ) -> None:
        self._output = output
        self._on_answer = on_answer
        self._silenced = silenced

    async def send(self, item: SessionMessage, /) -> None:
        if self._output.broken:
            raise anyio.BrokenResourceError
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if message.id in self._silenced:
                self._silenced.discard(message.id)
                return
            self._output.write(_answer_line(message))
            self._on_answer(message.id)
        else:
            # A tool that only reports progress must not block other tasks, and must be cancellable.
            await checkpoint()
            self._output.write(_line(message))
        if self._output.is_full:
            await self._output.drained()

    async def aclose(self) -> None:
        pass


def _typed(message: Json) -> JSONRPCMessage:
    if is_request(message):
        return JSONRPCRequest.model_validate(message)
    if "method" in message:
        return JSONRPCNotification.model_validate(message)
    if "error" in message:
        return JSONRPCError.model_validate({"id": None, **message})
    return JSONRPCResponse.model_validate(message)


def _answer_line(message: JSONRPCResponse | JSONRPCError) -> bytes:
    try:
        return _line(message)
    except (ValueError, RecursionError) as error:
        shown_id = clip(repr(message.id))
        _logger.error("the answer to the request %s cannot be written as JSON: %s", shown_id, error)  # noqa: TRY400 - needs no traceback
        refusal = ErrorData(code=INTERNAL_ERROR, message="the answer cannot be written as JSON")
        return _line(JSONRPCError(jsonrpc="2.0", id=message.id, error=refusal))


def _line(message: JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        # Lone surrogates from a client, which JSON can contain only in escaped form.
        plain: Any = message.model_dump(by_alias=True, exclude_unset=True)
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode() + b"\n"

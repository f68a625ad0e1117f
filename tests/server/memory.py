"""A transport of the official SDK's client to a server in the same process: `StreamConnection` alone."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bridge.protocol.messages import read_message
from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.exchange import LocalOrigin
from bridge.server.observed import dispatch_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from bridge.server.core import ServerCore

    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def memory(server: ServerCore) -> AsyncIterator[Streams]:
    """Return a transport for `mcp.Client`: one connection to a server."""
    answers, received = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    sent, requests = anyio.create_memory_object_stream[SessionMessage](0)

    def write(message: bytes) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            answers.send_nowait(SessionMessage(jsonrpc_message_adapter.validate_json(message)))

    connection = StreamConnection(server, dispatch_of(server), LocalOrigin(EVERYTHING), write)

    async def serve() -> None:
        async for each in requests:
            message = read_message(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
            assert message is not None
            connection.receive(message)

    async with answers, received, sent, requests, connection.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield received, sent
        tasks.cancel_scope.cancel()

"""The other side of a `StreamConnection`."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from bridge.server.auth.access import EVERYTHING
from bridge.server.connection import StreamConnection
from bridge.server.exchange import LocalOrigin
from bridge.server.observed import dispatch_of
from bridge.server.server import Server
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import initialize, modern, notification

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bridge.server.core import ServerCore

DEADLINE_SECONDS = 60


class Peer:
    """The other side of a connection."""

    def __init__(self, core: ServerCore, *, is_modern: bool = False, **options: Any) -> None:
        self.lines: list[bytes] = []
        self._is_modern = is_modern
        origin = LocalOrigin(EVERYTHING)
        self.connection = StreamConnection(core, dispatch_of(core), origin, self.lines.append, **options)

    def send(self, *messages: dict[str, Any]) -> None:
        """Send messages; requests in the era of the peer."""
        for message in messages:
            self.connection.receive(modern(message) if self._is_modern and "id" in message else message)

    def received(self) -> list[dict[str, Any]]:
        """Return the messages since the last time."""
        messages = [json.loads(line) for line in self.lines]
        self.lines.clear()
        return messages

    async def answers(self) -> list[dict[str, Any]]:
        """Return the messages once every request is answered."""
        await self.connection.settled()
        return self.received()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Peer]:
        """Connect, and make the handshake in its era."""
        with anyio.fail_after(DEADLINE_SECONDS):
            async with self.connection.running():
                if not self._is_modern:
                    self.send(initialize(), notification("notifications/initialized"))
                    assert "result" in self.received()[0]
                yield self


def published(*tools: Any, **options: Any) -> Server:
    return Server(ToolBox(*tools), name="tests", **options)


def cancellation(message_id: Any) -> dict[str, Any]:
    return notification("notifications/cancelled", {"requestId": message_id})


def codes(messages: list[dict[str, Any]]) -> dict[int | str, int]:
    """Return the codes of errors by the ids of their requests, 0 for results."""
    return {each["id"]: each["error"]["code"] if "error" in each else 0 for each in messages if "id" in each}

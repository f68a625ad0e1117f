"""JSON-RPC messages between the inspector and the servers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.client.connection.status import MessageDirection
    from bridge.types import Json

MAX_MESSAGES = 1_000
"""Maximum messages that are kept."""
MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of all messages that are kept."""

_MAX_OPEN_REQUESTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message."""

    number: int
    """Position in the traffic, from 1."""
    server: str
    direction: MessageDirection
    at_seconds: float
    """Time in seconds since 1970."""
    method: str
    """Method of a request or notification; of a response, that of its request, or empty if that is unknown."""
    kind: str
    """``request``, ``notification``, ``result`` or ``error``."""
    text: str
    """The message as JSON."""

    def summary(self) -> Json:
        """The message without its text, as JSON for the page."""
        return {
            "number": self.number,
            "server": self.server,
            "direction": self.direction,
            "at": self.at_seconds,
            "method": self.method,
            "kind": self.kind,
            "bytes": len(self.text.encode(errors="replace")),
        }


class Traffic:
    """The last messages of all servers.

    Args:
        publish: Called with the summary of each message.
    """

    def __init__(self, publish: Callable[[Json], None]) -> None:
        self._publish = publish
        self._messages: deque[Message] = deque()
        self._count = 0
        self._chars = 0
        self._methods: dict[tuple[str, MessageDirection, Any], str] = {}

    def record(self, server: str, direction: MessageDirection, text: str) -> None:
        """Add a message; the oldest ones are forgotten."""
        kind, method = self._described(server, direction, from_json(text))
        self._count += 1
        message = Message(
            number=self._count,
            server=server,
            direction=direction,
            at_seconds=time(),
            method=method,
            kind=kind,
            text=text,
        )
        self._messages.append(message)
        self._chars += len(text)
        while len(self._messages) > MAX_MESSAGES or self._chars > MAX_BYTES:
            self._chars -= len(self._messages.popleft().text)
        self._publish(message.summary())

    def get(self, number: int) -> Message | None:
        """Return a message by its number; None if it is forgotten."""
        return next((message for message in self._messages if message.number == number), None)

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()
        self._chars = 0

    def summaries(self) -> list[Json]:
        """All messages without their texts, the oldest first."""
        return [message.summary() for message in self._messages]

    def _described(self, server: str, direction: MessageDirection, message: Json) -> tuple[str, str]:
        """Kind and method of a message; the last requests are remembered until their response."""
        method, message_id = message.get("method"), message.get("id")
        if method is None:
            asked: MessageDirection = "received" if direction == "sent" else "sent"
            return "error" if "error" in message else "result", self._methods.pop((server, asked, message_id), "")
        if message_id is None:
            return "notification", method
        self._methods[server, direction, message_id] = method
        if len(self._methods) > _MAX_OPEN_REQUESTS:
            del self._methods[next(iter(self._methods))]
        return "request", method

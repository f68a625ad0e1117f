"""Calls at a steady pace, which start on time even if earlier ones have not ended.

Latency counts from the scheduled start. A client that waits for each response before it sends the next would send
little to a server that has stopped for a second, and would report one slow call instead of hundreds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from selectors import EVENT_READ, SelectSelector
from time import perf_counter
from typing import TYPE_CHECKING, Self

from tests.benchmarks.load.crowd import Client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ANSWER_SECONDS = 30.0
"""Seconds without any response after which the missing ones are given up."""

_MOST_CONNECTIONS = 300
_CLOSE = b"\r\nconnection: close\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one call."""

    number: int
    """Index of the call, from 0."""
    due_seconds: float
    """Scheduled start in seconds, after the first call."""
    late_seconds: float
    """Seconds from the scheduled start until it was sent: the delay of the client itself."""
    seconds: float
    """Seconds from the scheduled start until the response was complete."""
    text: bytes
    """Head and body; empty if the connection was closed instead, or no response arrived."""


class Pace:
    """Clients with persistent connections, like a connection pool; connections are opened as needed.

    Args:
        port: The server's port on this machine.
        calls_a_second: Calls that start in a second.
        kept_calls: Calls after which a connection is closed.
    """

    def __init__(self, port: int, calls_a_second: float, kept_calls: int) -> None:
        self._port = port
        self._calls_a_second = calls_a_second
        self._kept_calls = kept_calls
        self._selector = SelectSelector()  # the other timeouts are rounded to milliseconds
        self._idle: deque[Client] = deque()
        self._asking: dict[Client, tuple[int, float, float]] = {}
        self._started_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in (*self._idle, *self._asking):
            client.close()
        self._selector.close()

    def ask(self, requests: Iterable[bytes]) -> Iterator[Outcome]:
        """Send requests at the pace, and yield the result of each as it is known."""
        self._started_at = perf_counter()
        for number, request in enumerate(requests):
            due_seconds = number / self._calls_a_second
            while True:
                left_seconds = due_seconds - self._now()
                is_full = len(self._asking) == _MOST_CONNECTIONS
                yield from self._heard(ANSWER_SECONDS if is_full else max(0.0, left_seconds))
                if left_seconds <= 0 and len(self._asking) < _MOST_CONNECTIONS:
                    break
            yield from self._sent(number, due_seconds, request)
        while self._asking:
            yield from self._heard(ANSWER_SECONDS)

    def _sent(self, number: int, due_seconds: float, request: bytes) -> Iterator[Outcome]:
        client = self._idle.popleft() if self._idle else self._connected()
        self._asking[client] = number, due_seconds, self._now()
        try:
            client.send(request)
        except ConnectionError:
            yield self._ended(client, b"")

    def _heard(self, timeout_seconds: float) -> Iterator[Outcome]:
        ready = self._selector.select(timeout_seconds)
        if not ready and timeout_seconds == ANSWER_SECONDS:
            yield from [self._ended(client, b"") for client in tuple(self._asking)]
        for key, _ in ready:
            client = key.fileobj
            assert isinstance(client, Client)
            answer = client.receive()
            if answer is None:
                continue
            if client in self._asking:
                yield self._ended(client, answer.text)
            else:
                self._idle.remove(client)
                self._close(client)

    def _ended(self, client: Client, text: bytes) -> Outcome:
        number, due_seconds, sent_seconds = self._asking.pop(client)
        seconds = self._now() - due_seconds
        if not text or client.calls >= self._kept_calls or _CLOSE in text.partition(b"\r\n\r\n")[0].lower() + b"\r\n":
            self._close(client)
        else:
            self._idle.append(client)
        return Outcome(
            number=number,
            due_seconds=due_seconds,
            late_seconds=sent_seconds - due_seconds,
            seconds=seconds,
            text=text,
        )

    def _connected(self) -> Client:
        client = Client(self._port)
        self._selector.register(client, EVENT_READ)
        return client

    def _close(self, client: Client) -> None:
        self._selector.unregister(client)
        client.close()

    def _now(self) -> float:
        return perf_counter() - self._started_at

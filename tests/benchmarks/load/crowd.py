"""Many clients of one server, each with one request at a time.

One thread drives them with a selector and without an event loop, so that they take little processor time.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from time import perf_counter
from typing import TYPE_CHECKING, Self

from tests.benchmarks.processes import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to one request."""

    seconds: float
    """Seconds from the first byte sent to the last byte received."""
    text: bytes
    """Head and body; empty if the server closed the connection instead."""


class Crowd:
    """Clients with persistent connections.

    Args:
        port: The server's port on this machine.
        clients: Number of clients.
    """

    def __init__(self, port: int, clients: int) -> None:
        self._selector = DefaultSelector()
        self._clients = [Client(port) for _ in range(clients)]
        for client in self._clients:
            self._selector.register(client, EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for client in self._clients:
            client.close()

    def ask(self, requests: Iterable[bytes]) -> Iterator[Answer]:
        """Send requests over idle clients, and yield the responses as they arrive.

        A missing response makes the whole crowd unusable.
        """
        pending = iter(requests)
        asking = 0
        for client in self._clients:
            if (request := next(pending, None)) is None:
                break
            client.send(request)
            asking += 1
        while asking:
            ready = self._selector.select(LIMIT_SECONDS)
            assert ready, f"nothing came for {LIMIT_SECONDS} seconds"
            for key, _ in ready:
                client = key.fileobj  # type: ignore[assignment]  # what was registered
                if (answer := client.receive()) is None:
                    continue
                if not answer.text:
                    self._selector.unregister(client)
                    asking -= 1
                elif (request := next(pending, None)) is None:
                    asking -= 1
                else:
                    client.send(request)
                yield answer
        assert next(pending, None) is None, "the server closed every connection"


class Client:
    """One connection, with one request at a time.

    Args:
        port: The server's port on this machine.
    """

    def __init__(self, port: int) -> None:
        self.calls = 0
        """Number of requests sent."""
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_at = 0.0
        self._received = b""

    def fileno(self) -> int:
        """File descriptor, for a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.calls += 1
        self._received = b""
        self._sent_at = perf_counter()
        self._socket.sendall(request)

    def receive(self) -> Answer | None:
        """Receive data; returns the response when it is complete, otherwise None."""
        try:
            part = self._socket.recv(_READ_BYTES)
        except ConnectionResetError:
            part = b""
        self._received += part
        if part and not _is_whole(self._received):
            return None
        return Answer(perf_counter() - self._sent_at, self._received if part else b"")


def _is_whole(text: bytes) -> bool:
    head, found, body = text.partition(b"\r\n\r\n")
    if not found:
        return False
    fields = head.lower()
    if b"transfer-encoding: chunked" in fields:
        return body == b"0\r\n\r\n" or body.endswith(b"\r\n0\r\n\r\n")
    _, found, length = fields.partition(b"content-length:")
    return not found or len(body) >= int(length.partition(b"\r\n")[0])

"""A provider on this machine: an HTTP server with given responses, byte for byte."""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

DEADLINE_SECONDS = 60

JSON_TYPE = {"content-type": "application/json"}
EVENT_STREAM = {"content-type": "text/event-stream"}


@dataclass(frozen=True)
class Received:
    """One received request."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One response."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    """The body, one HTTP chunk each: a client receives them one by one."""
    is_held: bool = False
    """True if the response waits until the test releases it."""
    ending: Literal["whole", "dropped", "stalled"] = "whole"
    """End of the body: complete, a cut connection, or nothing until the client disconnects."""


def json_answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a whole JSON response."""
    return Answer(status=status, headers={**JSON_TYPE, **(headers or {})}, chunks=(json.dumps(body).encode(),))


class Provider:
    """The server as a test sees it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Received] = []
        self.answers: deque[Answer] = deque()
        self.answer_to: Callable[[Received], Answer] = lambda _: self.answers.popleft()
        """Creates the response to a request; a test may replace it."""
        self.asked = Event()
        """Set when a request has arrived whose response is held."""
        self.released = Event()
        """Releases held responses."""
        self.answered = Event()
        """Set when a stalled response is written as far as it goes."""
        self.hung_up = Event()
        """Set when a client has disconnected from a stalled response."""

    @property
    def body(self) -> Any:
        """Return the body of the only request."""
        (request,) = self.requests
        return request.body

    def will_answer(self, *answers: Answer) -> None:
        """Set the next responses, in their order."""
        self.answers.extend(answers)


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Run a provider in this block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.provider = provider = Provider(f"http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]  # ours
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join(DEADLINE_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # clients may disconnect at any time
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        provider: Provider = self.server.provider  # type: ignore[attr-defined]  # ours
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.path, headers, json.loads(body))
        provider.requests.append(received)
        answer = provider.answer_to(received)
        if answer.is_held:
            provider.asked.set()
            provider.released.wait(DEADLINE_SECONDS)
        try:
            self._send(answer)
        except (BrokenPipeError, ConnectionResetError):
            provider.hung_up.set()
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for chunk in answer.chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if answer.ending == "whole":
            self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True
        if answer.ending == "dropped":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        provider: Provider = self.server.provider  # type: ignore[attr-defined]  # ours
        provider.answered.set()
        self.connection.settimeout(DEADLINE_SECONDS)
        if self.connection.recv(1) == b"":
            provider.hung_up.set()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


# --- streams ---------------------------------------------------------------------------------------------------------


def server_sent(events: Iterable[Any], *, named: bool = False, done: bool = False) -> bytes:
    """Return events as an event stream; `named` by their type."""
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    ]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def cuts(stream: bytes, piece_bytes: int = 40) -> Iterator[tuple[bytes, ...]]:
    """Yield a stream cut into pieces of this size, from each offset: each byte begins a piece of one of them."""
    for offset in range(1, piece_bytes + 1):
        bounds = [0, *range(offset, len(stream), piece_bytes), len(stream)]
        yield tuple(stream[start:end] for start, end in pairwise(bounds))


def single_bytes(stream: bytes) -> tuple[bytes, ...]:
    """Return a stream cut at every byte."""
    return tuple(stream[at : at + 1] for at in range(len(stream)))

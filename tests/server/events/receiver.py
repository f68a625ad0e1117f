"""A receiver of webhooks on a socket of its own, which passes the challenge and keeps what it gets."""

from __future__ import annotations

import json
import queue
import ssl
import threading
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_SECONDS = 30


def new_secret(size: int = 32) -> str:
    """Return a secret of random bytes."""
    return f"whsec_{b64encode(token_bytes(size)).decode()}"


class Received(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    """Headers by lower-case names."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class Receiver:
    """A receiver: statuses that were put are the next answers to events, then 204."""

    def __init__(self) -> None:
        self.challenges: list[Received] = []
        self.statuses: list[int] = []
        self.passes_challenge: Any = lambda challenge: {"challenge": challenge}
        """Returns the answer to a challenge."""
        self.location = ""
        self.held: list[str] = []
        """Paths of the requests that are held."""
        self._held_path = ""
        self._changed = threading.Condition()
        self._received: queue.Queue[Received] = queue.Queue()
        self.url = ""

    def next(self) -> Received:
        """Wait for the next request that is not a challenge."""
        return self._received.get(timeout=DEADLINE_SECONDS)

    @contextmanager
    def holding(self, path: str) -> Iterator[None]:
        """Answer no request below a path in this block."""
        self._held_path = path
        try:
            yield
        finally:
            with self._changed:
                self._held_path = ""
                self._changed.notify_all()

    def wait_for_held(self, count: int) -> None:
        """Wait until so many requests are held."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.held) >= count, DEADLINE_SECONDS)

    def next_event(self) -> Any:
        """Wait for the next event."""
        return self.next().json

    @property
    def is_empty(self) -> bool:
        """True if no request waits."""
        return self._received.empty()

    def take(self, received: Received) -> tuple[int, bytes]:
        """Handle a request; return the status and the body of the answer."""
        if received.json.get("type") == "verification":
            self.challenges.append(received)
            answer = self.passes_challenge(received.json["challenge"])
            return (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())
        if self._held_path and received.path.startswith(self._held_path):
            with self._changed:
                self.held.append(received.path)
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._held_path, DEADLINE_SECONDS)
        status = self.statuses.pop(0) if self.statuses else 204
        self._received.put(received)
        return status, b""


@contextmanager
def receiving(certificate: Path | None = None) -> Iterator[Receiver]:
    """Receive in this block; with a certificate and key, over TLS."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = receiver.take(Received(self.path, headers, body))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", receiver.location)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that refuse the certificate
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket, scheme = context.wrap_socket(server.socket, server_side=True), "https"
    host = "127.0.0.1" if certificate is None else "localhost"
    receiver.url = f"{scheme}://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A server over HTTP, and connections to it that cost little themselves."""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import to_json

from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era
from tests.benchmarks.processes import LIMIT_SECONDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVING = re.compile(rb"serving .* at http://127\.0\.0\.1:(\d+)")
_HEADERS = {
    "host": "127.0.0.1",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


class Connection:
    """One connection that is kept; requests go in as they are, and answers come out with their heads.

    Args:
        port: Where the server listens on this machine.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, raw: bytes) -> None:
        """Send a request."""
        self._socket.sendall(raw)

    def receive(self) -> bytes:
        """The next answer, whole: its body has a length or comes in chunks."""
        head = self._lines()
        fields = head.lower()
        if b"transfer-encoding: chunked" in fields:
            return head + b"".join(self._chunks())
        _, found, length = fields.partition(b"content-length:")
        return head + self._reader.read(int(length.partition(b"\r\n")[0]) if found else 0)

    def answer(self, raw: bytes) -> bytes:
        """Send a request, and return its answer."""
        self.send(raw)
        return self.receive()

    def _lines(self) -> bytes:
        lines = []
        while (line := self._reader.readline()) != b"\r\n":
            assert line, "the server closed the connection"
            lines.append(line)
        return b"".join(lines)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._reader.readline(), 16):
            yield self._reader.read(size)
            self._reader.readline()
        self._reader.readline()


class HttpServer:
    """A running server.

    Args:
        process: Its process, which says on standard error where it listens.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self.process = process
        while (found := _SERVING.search(line := process.stderr.readline())) is None:
            assert line, "the server did not start"
        self.port = int(found[1])
        self._session_headers: dict[str, str] = {}

    def connect(self) -> Connection:
        """A connection of its own."""
        return Connection(self.port)

    def open_session(self) -> None:
        """Open a session of the handshake era, in which its requests are from now on."""
        with self.connect() as connection:
            head = connection.answer(self.post(INITIALIZE, Era.HANDSHAKE)).decode()
            found = re.search(r"(?im)^mcp-session-id: *(\S+)", head)
            assert found is not None, head
            self._session_headers = {"mcp-session-id": found[1]}
            connection.answer(self.post(INITIALIZED, Era.HANDSHAKE))

    def post(self, message: dict[str, Any], era: Era) -> bytes:
        """A request with a message, as it goes over a connection."""
        body = to_json(message)
        headers = _HEADERS | {"mcp-protocol-version": era.value, "content-length": str(len(body))}
        if era is Era.HANDSHAKE:
            headers |= self._session_headers
        else:
            headers |= {"mcp-method": message["method"], "mcp-name": message["params"]["name"]}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


@contextmanager
def serving(path: str) -> Iterator[HttpServer]:
    """Serve a file on a free port."""
    options = ("--transport", "http", "--port", "0", "--log-level", "error")
    with running("-m", "bridge", "serve", path, *options, stderr=subprocess.PIPE) as process:
        yield HttpServer(process)

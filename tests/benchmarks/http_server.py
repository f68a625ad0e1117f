"""A server over HTTP, and connections to it that take little processor time."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import to_json

from tests.benchmarks.messages import INITIALIZE, INITIALIZED, Era
from tests.benchmarks.processes import LIMIT_SECONDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SERVING = re.compile(rb"(?:serving .* at|Uvicorn running on) http://127\.0\.0\.1:(\d+)")
_SESSION_ID = re.compile(rb"(?im)^mcp-session-id: *(\S+)")
_HEADERS = {
    "host": "127.0.0.1:80",  # the official SDK needs a port
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


class Connection:
    """Persistent connection; requests are sent as they are, and responses returned with their heads.

    Args:
        port: The server's port on this machine.
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
        """Return the next response, whole: its body has a length, or is chunked."""
        head = self._lines()
        fields = head.lower()
        if b"transfer-encoding: chunked" in fields:
            return head + b"".join(self._chunks())
        _, found, length = fields.partition(b"content-length:")
        return head + self._reader.read(int(length.partition(b"\r\n")[0]) if found else 0)

    def answer(self, raw: bytes) -> bytes:
        """Send a request, and return its response."""
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
        process: Its process, which prints its address on standard error.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self.process = process
        while (found := _SERVING.search(line := process.stderr.readline())) is None:
            assert line, "the server did not start"
        self.port = int(found[1])
        self._session_id: str | None = None

    def connect(self) -> Connection:
        """Open a connection."""
        return Connection(self.port)

    def open_session(self) -> None:
        """Open a session of the handshake era, which later requests use."""
        with self.connect() as connection:
            self._session_id = session_id_in(connection.answer(self.post(INITIALIZE, Era.HANDSHAKE)))
            connection.answer(self.post(INITIALIZED, Era.HANDSHAKE))

    def post(self, message: dict[str, Any], era: Era, session_id: str | None = None) -> bytes:
        """Return a request as bytes.

        Args:
            message: The JSON-RPC message.
            era: Era of the request.
            session_id: ID of a session of the handshake era; None for that of `open_session`, if it was called.
        """
        return post(message, era, session_id or self._session_id)


def post(message: dict[str, Any], era: Era, session_id: str | None = None) -> bytes:
    """Return a request to any server as bytes; see `HttpServer.post`."""
    body = to_json(message)
    headers = _HEADERS | {"mcp-protocol-version": era.value, "content-length": str(len(body))}
    if era is Era.MODERN:
        headers["mcp-method"] = message["method"]
        if (
            name := message["params"].get("name", message["params"].get("uri", message["params"].get("taskId")))
        ) is not None:
            headers["mcp-name"] = name
    elif session_id is not None:
        headers["mcp-session-id"] = session_id
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


def bearing(key: str, raw: bytes) -> bytes:
    """Return a request with a key, made of one without."""
    return raw.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer %b\r\n\r\n" % key.encode(), 1)


def session_id_in(answer: bytes) -> str:
    """Return the session ID in a response."""
    found = _SESSION_ID.search(answer)
    assert found is not None, answer
    return found[1].decode()


@contextmanager
def serving(
    path: str,
    *options: str,
    tools: int = 1,
    limit_seconds: float = LIMIT_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Iterator[HttpServer]:
    """Serve a file on a free port.

    Args:
        path: The file.
        options: Further options of the command.
        tools: Number of tools, for a file that can have many.
        limit_seconds: Maximum lifetime of the server.
        environment: Additional environment variables.
    """
    command = ("-m", "bridge", "serve", path, "--transport", "http", "--port", "0", "--log-level", "error", *options)
    variables = {**os.environ, "BENCHMARK_TOOLS": str(tools), **(environment or {})}
    with running(*command, limit_seconds=limit_seconds, env=variables, stderr=subprocess.PIPE) as process:
        yield HttpServer(process)

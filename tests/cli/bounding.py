"""An HTTP server in this process with limits of its connections, for each implementation that reads them."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bridge.hosting.http.h11_parser import H11Parser
from bridge.hosting.serve import http_protocol
from bridge.server import Server, http_app
from bridge.server.http.probes import Probes
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.hosting.http.limits import ConnectionLimits

DEADLINE_SECONDS = 60
PROTOCOLS = pytest.mark.parametrize("protocol", ["direct", "httptools", "h11"])
CALL = modern("tools/call", name="add", arguments={"a": 1, "b": 2}).raw


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@contextmanager
def served(
    protocol: str, bounds: ConnectionLimits, *tools: object, server: Server | None = None, **options: Any
) -> Iterator[int]:
    """Serve `add` and more tools, or a server, with options of `http_app`; gives the port."""
    app = http_app(server or ToolBox(add, *tools), **options)
    handler = None if protocol == "httptools" else app.pre_asgi_handler(lambda: True)
    http = http_protocol(handler, bounds, H11Parser if protocol == "h11" else None)
    app.add_middleware(Probes)
    with http_server.serving(app, http=http) as origin:
        yield int(origin.rpartition(":")[2])


@contextmanager
def connected(port: int, raw: bytes = b"", *, client: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Open a connection from an address of this machine, and send bytes."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS, (client, 0)) as connection:
        connection.sendall(raw)
        yield connection


def answer(connection: socket.socket, raw: bytes = b"") -> bytes:
    """Send bytes, and return what is received up to the end of a head, or until the server closes."""
    connection.sendall(raw)
    text = b""
    while b"\r\n\r\n" not in text and (part := connection.recv(65_536)):
        text += part
    return text


def answers(connection: socket.socket, count: int) -> list[tuple[bytes, Any]]:
    """Receive responses; returns their heads and bodies in order."""
    found: list[tuple[bytes, Any]] = []
    text = b""
    while len(found) < count:
        head, is_whole, rest = text.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.splitlines() if line.startswith(b"content-length")), 0)
        if is_whole and len(rest) >= length:
            found.append((head, json.loads(rest[:length])))
            text = rest[length:]
        else:
            data = connection.recv(65_536)
            assert data, "the connection was closed"
            text += data
    return found

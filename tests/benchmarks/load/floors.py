"""Servers that answer a constant, for the lower bound of a call's time. Their argument is ``http`` or ``stdio``.

Over HTTP that is uvicorn as ``bridge serve`` runs it, over stdio the pipes and lines of `bridge.server`.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, cast

import anyio
import uvicorn

from bridge.hosting.serve import http_protocol
from bridge.server.http.responses import Response
from bridge.server.stdio.pipes import open_input, open_output
from bridge.server.stdio.server import LineSplitter

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.requests import Head

ANSWER = (
    b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}],"isError":false,'
    b'"structuredContent":{"result":3}}}'
)
_MAX_LINE_BYTES = 65_536


class _Same:
    """Answers each request with the same text."""

    def begin(self, head: Head, body: bytes) -> Response:
        return Response(ANSWER)


async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Stand in for a request that is not read."""
    raise NotImplementedError


def serve_http() -> None:
    """Serve until the process is ended."""
    http = http_protocol(cast("PreAsgiHandler", _Same()))
    config = uvicorn.Config(
        app, http=http, lifespan="off", ws="none", log_config=None, access_log=False, server_header=False
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stderr.write(f"serving a floor at http://127.0.0.1:{listening.getsockname()[1]}/\n")
        uvicorn.Server(config).run([listening])


async def serve_stdio() -> None:
    """Answer each line with the same text until standard input ends."""
    ended = anyio.Event()
    lines = LineSplitter(_MAX_LINE_BYTES)

    def receive(data: bytes) -> None:
        for _ in lines.feed(data):
            output.write(ANSWER + b"\n")

    for fd in (sys.stdin.fileno(), sys.stdout.fileno()):
        os.set_blocking(fd, False)
    output = open_output(sys.stdout.fileno(), lambda: None, ended.set)
    source = open_input(sys.stdin.fileno(), receive, ended.set)
    await ended.wait()
    source.close()
    output.close()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    else:
        anyio.run(serve_stdio)

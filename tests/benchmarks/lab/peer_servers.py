"""The tools of the lab served by peers in Python: ``python -m … official|fastmcp|limit PORT WORKERS [sessions]``.

``limit`` is asyncio with uvloop and httptools, which parses the JSON and calls the function, without MCP: with the
same tools and libraries, no server in Python costs less.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

from tests.benchmarks.lab.shop import TOOLS

HOST, PATH = "127.0.0.1", "/mcp"
SESSIONS = "SHOP_SESSIONS"
"""Set if the server keeps sessions of the handshake era; it then has one process."""


def official() -> Any:
    """Return the app of the official SDK."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - of this peer alone

    server = MCPServer("lab", log_level="ERROR")
    for tool in TOOLS:
        server.tool()(tool)
    return server.streamable_http_app(json_response=True, stateless_http=SESSIONS not in os.environ)


def fastmcp() -> Any:
    """Return the app of FastMCP."""
    os.environ["FASTMCP_LOG_LEVEL"] = "ERROR"
    from fastmcp import FastMCP  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - of this peer alone

    server = FastMCP("lab")
    for tool in TOOLS:
        server.tool(tool)
    return server.http_app(path=PATH, json_response=True, stateless_http=SESSIONS not in os.environ)


async def limit(listening: socket.socket) -> None:
    """Serve the tools by a bare protocol."""
    import httptools  # noqa: PLC0415 - of this peer alone
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - as above

    tools = {tool.__name__: tool for tool in TOOLS}
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.parser, self.parts = transport, httptools.HttpRequestParser(self), [b""]

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_body(self, body: bytes) -> None:
            self.parts.append(body)

        def on_message_complete(self) -> None:
            message, self.parts = from_json(b"".join(self.parts)), []
            task = loop.create_task(self.answer(message))
            running.add(task)
            task.add_done_callback(running.discard)

        async def answer(self, message: Any) -> None:
            called = message["params"]
            result = to_json(await tools[called["name"]](**called["arguments"]))
            content = b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}' % (
                to_json(result.decode()),
                result if called["name"] != "distance" else b'{"result":%b}' % result,
            )
            body = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], content)
            self.transport.write(head % len(body) + body)

    server = await loop.create_server(Protocol, sock=listening)
    await server.serve_forever()


def main(peer: str, port: str, workers: str, *options: str) -> None:
    if "sessions" in options:
        os.environ[SESSIONS] = "1"
    if peer == "limit":
        import uvloop  # noqa: PLC0415 - of this peer alone

        listening = socket.create_server((HOST, int(port)), backlog=512)
        for _ in range(int(workers) - 1):
            if os.fork() == 0:
                break
        uvloop.run(limit(listening))
        return
    import uvicorn  # noqa: PLC0415 - as above

    app = f"{__spec__.name}:{peer}"
    uvicorn.run(
        app, factory=True, host=HOST, port=int(port), workers=int(workers), access_log=False, log_level="warning"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

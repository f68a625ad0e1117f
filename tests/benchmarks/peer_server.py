"""A tool, two resources and a prompt, served by a peer: ``peer_server.py official|fastmcp|route|limit stdio|http``.

``peer_server.py fastmcp-proxy|mcp-proxy http FILE`` serves the servers of a configuration through a peer's proxy.

A peer may have a Python of its own, so nothing is imported from elsewhere in the tests. Over HTTP the server prints its
address on standard error. The third argument ``sessions`` keeps sessions of the handshake era.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

PATH = "/mcp"


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def today() -> str:
    """A text."""
    return "It rains."


async def note(name: str) -> str:
    """A text of a template."""
    return f"A note of {name}"


async def review(code: str) -> str:
    """A prompt."""
    return f"Review this: {code}"


def official(transport: str, *, keeps_sessions: bool) -> Any:
    """Serve with the official SDK's `MCPServer`."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - FastMCP's Python may have another version

    server = MCPServer("peer")
    server.tool()(add)
    server.resource("notes://today")(today)
    server.resource("notes://by/{name}")(note)
    server.prompt()(review)
    if transport == "stdio":
        return server.run("stdio")
    return server.streamable_http_app(json_response=True, stateless_http=not keeps_sessions)


def fastmcp(transport: str, *, keeps_sessions: bool) -> Any:
    """Serve with FastMCP."""
    from fastmcp import FastMCP  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed elsewhere

    server = FastMCP("peer")
    server.tool(add)
    server.resource("notes://today")(today)
    server.resource("notes://by/{name}")(note)
    server.prompt(review)
    if transport == "stdio":
        return server.run("stdio", show_banner=False)
    return server.http_app(path=PATH, json_response=True, stateless_http=not keeps_sessions)


def fastmcp_tasks() -> Any:
    """Serve with FastMCP a tool whose calls become tasks, kept in memory."""
    from fastmcp import FastMCP  # noqa: PLC0415 - it is installed elsewhere
    from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed elsewhere

    server = FastMCP("peer")
    server.add_extension(TasksExtension())
    server.tool(task=True)(add)
    return server.http_app(path=PATH, json_response=True, stateless_http=True)


def fastmcp_proxy(file: str) -> Any:
    """Serve through FastMCP's proxy."""
    os.environ["FASTMCP_LOG_LEVEL"] = "ERROR"  # nobody reads its log
    from fastmcp.server import create_proxy  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed elsewhere

    proxy = create_proxy(json.loads(Path(file).read_text(encoding="utf-8")), name="proxy")
    return proxy.http_app(path=PATH, json_response=True)


def mcp_proxy(file: str) -> None:
    """Serve through PyPI's mcp-proxy, which has one child over stdio here."""
    from mcp.client.stdio import StdioServerParameters  # noqa: PLC0415 - it has another version of the SDK
    from mcp_proxy.mcp_server import (  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed elsewhere
        MCPServerSettings,
        run_mcp_server,
    )

    logging.getLogger("uvicorn.access").addFilter(lambda _: False)
    (server,) = json.loads(Path(file).read_text(encoding="utf-8"))["mcpServers"].values()
    asyncio.run(run_mcp_server(MCPServerSettings("127.0.0.1", 0), StdioServerParameters(**server)))


def route(transport: str, *, keeps_sessions: bool) -> Any:
    """Serve a Starlette route that validates, adds and answers, without a protocol."""
    from pydantic import BaseModel  # noqa: PLC0415 - of this peer alone
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - as above
    from starlette.applications import Starlette  # noqa: PLC0415 - as above
    from starlette.responses import Response  # noqa: PLC0415 - as above
    from starlette.routing import Route  # noqa: PLC0415 - as above

    class Sum(BaseModel):
        a: int
        b: int

    async def answer(request: Any) -> Response:
        message = from_json(await request.body())
        asked = Sum.model_validate(message["params"]["arguments"])
        total = await add(asked.a, asked.b)
        result = {"content": [{"type": "text", "text": str(total)}], "structuredContent": {"result": total}}
        body = to_json({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


async def limit() -> None:
    """Serve a bare protocol of asyncio, which reads the JSON and answers: no server in Python costs less."""
    import httptools  # noqa: PLC0415 - of this peer alone
    from pydantic_core import from_json, to_json  # noqa: PLC0415 - as above

    async def result_of(method: str, params: Any) -> bytes:
        if method == "tools/call":
            total = await add(**params["arguments"])
            return b'"content":[{"type":"text","text":"%d"}],"structuredContent":{"result":%d}' % (total, total)
        if method == "resources/read":
            uri: str = params["uri"]
            text = await (today() if uri == "notes://today" else note(uri.removeprefix("notes://by/")))
            return b'"contents":[{"uri":%b,"text":%b,"mimeType":"text/plain"}]' % (to_json(uri), to_json(text))
        if method == "prompts/get":
            written = to_json(await review(**params["arguments"]))
            return b'"messages":[{"role":"user","content":{"type":"text","text":%b}}]' % written
        return b'"resources":[{"uri":"notes://today","name":"today","description":"A text."}]'

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.parser = transport, httptools.HttpRequestParser(self)

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_body(self, body: bytes) -> None:
            message = from_json(body)
            try:
                result_of(message["method"], message["params"]).send(None)
            except StopIteration as end:
                answer = b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete",%b}}' % (message["id"], end.value)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                self.transport.write(head % len(answer) + answer)

    server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0)
    sys.stderr.write(f"serving the limit at http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


def main(peer: str, transport: str, *options: str) -> None:
    if peer == "mcp-proxy":
        mcp_proxy(*options)
        return
    if peer == "limit":
        import uvloop  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - of this peer alone

        uvloop.run(limit())
        return
    if peer == "fastmcp-proxy":
        app = fastmcp_proxy(*options)
    elif peer == "fastmcp-tasks":
        app = fastmcp_tasks()
    else:
        app = {"official": official, "fastmcp": fastmcp, "route": route}[peer](
            transport, keeps_sessions="sessions" in options
        )
    if transport == "http":
        import uvicorn  # noqa: PLC0415 - over stdio nobody waits for it

        uvicorn.run(app, host="127.0.0.1", port=0, access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

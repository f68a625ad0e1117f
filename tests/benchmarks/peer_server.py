"""One tool that adds two integers, served as a peer serves it: ``peer_server.py official|fastmcp|route stdio|http``.

A peer may have a Python of its own, so that nothing here is imported from elsewhere in the tests. Over HTTP it says on
standard error where it listens. ``sessions`` as a third word keeps sessions of the handshake era.
"""

from __future__ import annotations

import sys
from typing import Any

PATH = "/mcp"


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def official(transport: str, *, keeps_sessions: bool) -> Any:
    """The high-level server of the official SDK."""
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - FastMCP's Python may have another version

    server = MCPServer("peer")
    server.tool()(add)
    if transport == "stdio":
        return server.run("stdio")
    return server.streamable_http_app(json_response=True, stateless_http=not keeps_sessions)


def fastmcp(transport: str, *, keeps_sessions: bool) -> Any:
    """FastMCP."""
    from fastmcp import FastMCP  # type: ignore[import-not-found]  # noqa: PLC0415 - it is installed elsewhere

    server = FastMCP("peer")
    server.tool(add)
    if transport == "stdio":
        return server.run("stdio", show_banner=False)
    return server.http_app(path=PATH, json_response=True, stateless_http=not keeps_sessions)


def route(transport: str, *, keeps_sessions: bool) -> Any:
    """A route of Starlette that validates, adds and answers, without a protocol."""
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


def main(peer: str, transport: str, *options: str) -> None:
    app = {"official": official, "fastmcp": fastmcp, "route": route}[peer](
        transport, keeps_sessions="sessions" in options
    )
    if transport == "http":
        import uvicorn  # noqa: PLC0415 - over stdio nobody waits for it

        uvicorn.run(app, host="127.0.0.1", port=0, access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])

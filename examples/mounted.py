"""Tools inside a web application that exists already: one process, one port, both for browsers and for assistants.

uvicorn examples.mounted:app               # then point an MCP client to http://127.0.0.1:8000/tools
python examples/mounted.py                 # serves itself, and uses both sides
"""

import socket
from typing import Annotated

import anyio
import uvicorn
from mcp import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bridge import P, ToolBox, tool
from bridge.server import mount

visits = 0


async def home(_: Request) -> PlainTextResponse:
    """The page for people."""
    global visits  # noqa: PLW0603 - what the page and the tool share
    visits += 1
    return PlainTextResponse("Hello.")


@tool
async def count_visits(since: Annotated[int, P("Count from this number on")] = 0) -> int:
    """Counts how often the page was visited."""
    return visits - since


app = Starlette(routes=[Route("/", home)])

# One line: the tools are served at /tools, and start and stop with the application. The same works with FastAPI.
mount(app, "/tools", ToolBox(count_visits))


async def main() -> None:
    """Serve the application on a free port, visit the page, and ask the tool."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listening])
        await visit(port)

        async with Client(f"http://127.0.0.1:{port}/tools") as client:
            result = await client.call_tool("count_visits")
        print(f"the tool counts {result.structured_content} visit on port {port}")
        assert result.structured_content == {"result": 1}
        server.should_exit = True


async def visit(port: int) -> None:
    """Be a browser."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        page = b"".join([data async for data in stream])
    print("the page says", page.splitlines()[-1].decode())
    assert page.endswith(b"Hello.")


if __name__ == "__main__":
    anyio.run(main)

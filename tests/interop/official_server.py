"""A server written with the official SDK, run as a process: ``official_server.py stdio|sse|streamable-http [PORT]``."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel

Transport = Literal["stdio", "sse", "streamable-http"]


@dataclass
class Point:
    """A place on a plane."""

    x: float
    y: float


class Order(BaseModel):
    """Thing to bring."""

    dish: str


server = MCPServer("official", version="1.2.3", instructions="Be kind.")


@server.tool(title="Add", annotations=ToolAnnotations(read_only_hint=True), meta={"example.org/team": "x"})
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def mirror(point: Point) -> Point:
    """Mirror a point at the origin."""
    return Point(-point.x, -point.y)


@server.tool()
def fail() -> str:
    """Fail on purpose."""
    raise ToolError("on purpose")


@server.tool()
async def count(context: Context) -> str:
    """Report progress."""
    for step in (1, 2, 3):
        await context.report_progress(step, 3, f"step {step}")
    return "counted"


def ask() -> Elicit[Order]:
    """Question to ask."""
    return Elicit("What would you like?", Order)


@server.tool()
async def order(wish: Annotated[Order, Resolve(ask)]) -> str:
    """Ask for a dish."""
    return f"{wish.dish} it is"


@server.tool()
async def grow(context: Context) -> str:
    """Offer one tool more."""
    server.add_tool(late)
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "grown"


@server.resource("notes://all", title="All notes", mime_type="text/plain")
def notes() -> str:
    """All notes."""
    return "milk"


@server.resource("notes://{title}")
def note(title: str) -> str:
    """A note."""
    return f"about {title}"


@server.resource("bytes://some", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    """Some bytes."""
    return bytes(range(256))


@server.prompt(title="Review")
def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


def late() -> str:
    """Come later."""
    return "here"


if __name__ == "__main__":
    kind, *port = sys.argv[1:]
    if kind == "stdio":
        server.run("stdio")
    elif kind == "sse":
        server.run("sse", host="127.0.0.1", port=int(port[0]))
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(port[0]))

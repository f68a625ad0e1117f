"""A server written with FastMCP; it is run by a Python that has it: ``fastmcp_server.py stdio|http [PORT]``."""

import sys
from dataclasses import dataclass

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # it is installed elsewhere
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found]  # likewise


@dataclass
class Point:
    x: float
    y: float


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def mirror(point: Point) -> Point:
    """Mirror a point at the origin."""
    return Point(-point.x, -point.y)


def fail() -> str:
    """Fail on purpose."""
    raise ToolError("on purpose")


async def count(context: Context) -> str:
    """Report progress."""
    for step in (1, 2, 3):
        await context.report_progress(step, 3)
    return "counted"


async def order(context: Context) -> str:
    """Ask for a dish."""
    answer = await context.elicit("What would you like?", response_type=str)
    return f"{answer.action}: {getattr(answer, 'data', None)}"


def notes() -> str:
    """All notes."""
    return "milk"


def note(title: str) -> str:
    """A note."""
    return f"about {title}"


def review(code: str) -> str:
    """Review code."""
    return f"Review {code}"


server = FastMCP("fast")
for function in (add, mirror, fail, count, order):
    server.tool(function)
server.resource("notes://all", title="All notes", mime_type="text/plain")(notes)
server.resource("notes://{title}")(note)
server.prompt(title="Review")(review)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(transport="stdio", show_banner=False)
    else:
        server.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)

"""Tools for loads in breadth: one that adds, one with a large result, and one that changes a resource."""

from __future__ import annotations

from bridge import ResourceBox, resource, tool

LARGE_BYTES = 20 * 1024 * 1024
URI = "load://news"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def large() -> str:
    """Return 20 MiB of text."""
    return "x" * LARGE_BYTES


@resource(URI)
async def news() -> str:
    """Text that changes."""
    return "news"


NEWS = ResourceBox(news)


@tool
async def change() -> str:
    """Announce that the resource has changed."""
    NEWS.updated(URI)
    return "changed"

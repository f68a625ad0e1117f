"""A tool, two resources and a prompt, those of `peer_server.py`."""

from __future__ import annotations

from bridge import prompt, resource, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@resource("notes://today")
async def today() -> str:
    """A text."""
    return "It rains."


@resource("notes://by/{name}")
async def note(name: str) -> str:
    """A text of a template."""
    return f"A note of {name}"


@prompt
async def review(code: str) -> str:
    """A prompt."""
    return f"Review this: {code}"

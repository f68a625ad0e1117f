"""Words: what messages are made of."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """A number of things: ``1 tool``, ``2 tools``, ``0.5 seconds``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"

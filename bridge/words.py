"""Words: what messages are made of."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """A number of things: ``1 tool``, ``2 tools``, ``0.5 seconds``."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"


def visible(text: str) -> str:
    """What others wrote, for a terminal: what it would obey is written out, but for tabs and the ends of lines."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )

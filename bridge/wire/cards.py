"""Server cards and catalogues on the wire: media types, paths and schema (SEP-2127)."""

from __future__ import annotations

from urllib.parse import urlsplit

CARD_TYPE = "application/mcp-server-card+json"
"""Media type of a card."""
CATALOG_TYPE = "application/ai-catalog+json"
"""Media type of a catalogue."""
CATALOG_PATH = "/.well-known/ai-catalog.json"
"""Path of a host's catalogue."""
CARD_SUFFIX = "/server-card"
"""Ending of a card's URL, after that of the endpoint."""
CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
"""Schema of a card."""


def may_be_discovered(url: str) -> bool:
    """True for the URL of a domain, a catalogue or a card."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    return not parts.query and (path in {"", CATALOG_PATH} or path.endswith(CARD_SUFFIX))

"""Discovery of servers by their cards, and by the catalogue of a domain (SEP-2127).

A card is what its host says: it only tells where to connect. The protocol's own handshake decides about all else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx2

from bridge.client.config.server_json import entry_of
from bridge.client.transports.received_data import default_ssl_context
from bridge.errors import WireError
from bridge.text import clip
from bridge.wire.cards import CARD_SUFFIX, CARD_TYPE, CATALOG_PATH, CATALOG_TYPE

if TYPE_CHECKING:
    from bridge.types import Json

FETCH_SECONDS = 10.0
"""Maximum seconds for one document."""
MAX_DOCUMENT_BYTES = 256 * 1024
"""Maximum length of a card or a catalogue."""
MAX_CARDS = 50
"""Maximum cards of a catalogue that are read."""
_OK = 200


def discovered_servers(url: str) -> dict[str, Json]:
    """Return the servers that a URL describes, as entries of ``mcp.json`` by name; empty if it describes none.

    Args:
        url: URL of a domain, whose catalogue is read, of a catalogue, or of a card.

    Raises:
        WireError: A document is malformed or too long.
    """
    path = urlsplit(url).path.rstrip("/")
    with httpx2.Client(
        timeout=FETCH_SECONDS, verify=default_ssl_context(), follow_redirects=True, max_redirects=3
    ) as client:
        if path.endswith(CARD_SUFFIX):
            card = _fetched(client, url, CARD_TYPE)
            return {} if card is None else dict([entry_of(card)])
        catalog_url = url if path == CATALOG_PATH else urljoin(url, CATALOG_PATH)
        catalog = _fetched(client, catalog_url, CATALOG_TYPE)
        if catalog is None or not isinstance(catalog.get("entries"), list):
            return {}
        found: dict[str, Json] = {}
        of_cards = (each for each in catalog["entries"] if isinstance(each, dict) and each.get("type") == CARD_TYPE)
        for number, listed in enumerate(of_cards):
            if number == MAX_CARDS:
                break
            card = listed.get("data")
            if card is None and isinstance(link := listed.get("url"), str):
                card = _fetched(client, urljoin(catalog_url, link), CARD_TYPE)
            if card is not None:
                name, entry = entry_of(card)
                found[name if name not in found else f"{name}-{number}"] = entry
        return found


def _fetched(client: httpx2.Client, url: str, accepted: str) -> Json | None:
    """Fetch a JSON object; None if there is none.

    Raises:
        WireError: It is too long, or is a document of this type, and malformed.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise WireError(f"a card is fetched over HTTP, not from {clip(url)!r}")
    content = b""
    try:
        with client.stream("GET", url, headers={"accept": f"{accepted}, application/json"}) as response:
            if response.status_code != _OK:
                return None
            for part in response.iter_bytes():
                content += part
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise WireError(f"the document at {clip(url)!r} is longer than {MAX_DOCUMENT_BYTES:,} bytes")
            kind = response.headers.get("content-type", "")
    except httpx2.HTTPError:
        return None  # whoever connects says why
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return document
    if kind.startswith(accepted):
        raise WireError(f"the document at {clip(url)!r} is not a JSON object")
    return None

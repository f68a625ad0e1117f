"""Discovery of servers by their cards, and by the catalogue of a domain (SEP-2127).

A card is what its host says: it only tells where to connect, so that it starts no program, and asks for no variable of
the environment but those of this host. The protocol's own handshake decides about all else.
"""

from __future__ import annotations

import json
import logging
from itertools import chain, count
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx2

from bridge.client.config.server_json import entry_of
from bridge.client.transports.received_data import default_ssl_context
from bridge.errors import WireError
from bridge.text import clip
from bridge.types import require_object
from bridge.wire.cards import CARD_SUFFIX, CARD_TYPE, CATALOG_PATH, CATALOG_TYPE

if TYPE_CHECKING:
    from bridge.types import Json

FETCH_SECONDS = 10.0
"""Maximum seconds for one document."""
DISCOVERY_SECONDS = 30.0
"""Maximum seconds for a catalogue and its cards together."""
MAX_DOCUMENT_BYTES = 4 * 1024 * 1024
"""Maximum length of a card, a catalogue, or a page of a registry."""
MAX_CARDS = 50
"""Maximum cards of a catalogue that are read."""
_OK, _NOT_FOUND = 200, 404
_logger = logging.getLogger("bridge.client")


class Fetched(NamedTuple):
    """A document that was fetched."""

    document: Json
    """Its content."""
    url: httpx2.URL
    """Address that has served it, after redirects."""


def discovered_servers(url: str) -> dict[str, Json]:
    """Return the servers that a URL describes, as entries of ``mcp.json`` by name; empty if it describes none.

    Args:
        url: URL of a domain, whose catalogue is read, of a catalogue, or of a card.

    Raises:
        WireError: A document is malformed or too long. Of several cards of a catalogue, this is logged.
    """
    path = urlsplit(url).path.rstrip("/")
    ends_at = monotonic() + DISCOVERY_SECONDS
    with httpx2.Client(
        timeout=FETCH_SECONDS, verify=default_ssl_context(), follow_redirects=True, max_redirects=3
    ) as client:
        if path.endswith(CARD_SUFFIX):
            card = fetched(client, url, CARD_TYPE)
            return {} if card is None else dict([_entry_of(card)])
        catalog_url = url if path == CATALOG_PATH else urljoin(url, CATALOG_PATH)
        catalog = fetched(client, catalog_url, CATALOG_TYPE)
        if catalog is None or not isinstance(entries := catalog.document.get("entries"), list):
            return {}
        found: dict[str, Json] = {}
        problems: list[WireError] = []
        of_cards = [each for each in entries if isinstance(each, dict) and each.get("type") == CARD_TYPE]
        for listed in of_cards[:MAX_CARDS]:
            if monotonic() > ends_at:
                raise WireError(f"the cards of {clip(catalog_url)!r} take longer than {DISCOVERY_SECONDS:g} seconds")
            try:
                name, entry = _entry_of(_card_of(listed, catalog, client))
                names = chain([name], (f"{name}-{number}" for number in count(2)))
                found[next(each for each in names if each not in found)] = entry
            except WireError as error:
                _logger.warning("left out a server of %r: %s", clip(catalog_url), error)
                problems.append(error)
        if problems and not found:
            raise problems[0]
        return found


def _card_of(listed: Json, catalog: Fetched, client: httpx2.Client) -> Fetched:
    """Return the card of an entry of a catalogue.

    Raises:
        WireError: There is none, it is malformed, or it is on http, and the catalogue on https.
    """
    if (card := listed.get("data")) is not None:
        return Fetched(require_object(card, "a card"), catalog.url)
    if not isinstance(link := listed.get("url"), str):
        raise WireError("an entry with the type of a card has neither 'data' nor a 'url'")
    url = urljoin(str(catalog.url), link)
    if catalog.url.scheme == "https" and urlsplit(url).scheme != "https":
        raise WireError(f"the catalogue is on https, and its card is not: {clip(url)!r}")
    if (found := fetched(client, url, CARD_TYPE)) is None:
        raise WireError(f"there is no card at {clip(url)!r}")
    return found


def _entry_of(card: Fetched) -> tuple[str, Json]:
    """Return the server of a card as an entry; one that was served over https names no server without it.

    Raises:
        WireError: The card is malformed, or has no such server.
    """
    origin = f"{card.url.scheme}://{card.url.netloc.decode()}"
    name, entry = entry_of(card.document, host=origin.removeprefix("https://"))
    if card.url.scheme == "https" and entry["url"].startswith("http:"):
        raise WireError(f"the card of {name!r} is on https, and its server is not: {clip(entry['url'])!r}")
    return name, entry


def fetched(client: httpx2.Client, url: str, accepted: str, *, is_required: bool = False) -> Fetched | None:
    """Fetch a JSON object; None if there is none.

    Args:
        client: The HTTP client.
        url: Address of the document.
        accepted: Its media type.
        is_required: True if only a response of the status 404 means that there is none.

    Raises:
        WireError: It is too long, or is a document of this type, and malformed; or it is required, and cannot be
            fetched.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise WireError(f"a card is fetched over HTTP, not from {clip(url)!r}")
    try:
        found = _read(client, url, accepted)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        if is_required:
            raise WireError(f"{clip(url)!r} cannot be reached: {str(error) or type(error).__name__}") from error
        return None  # whoever connects says why
    if isinstance(found, int):
        if is_required and found != _NOT_FOUND:
            raise WireError(f"{clip(url)!r} was answered with the status {found}")
        return None
    content, kind, served_by = found
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return Fetched(document, served_by)
    if is_required or kind.startswith(accepted):
        raise WireError(f"the document at {clip(url)!r} is not a JSON object")
    return None


def _read(client: httpx2.Client, url: str, accepted: str) -> tuple[bytes, str, httpx2.URL] | int:
    """Return a document, its media type and its address, or the status of a response without one."""
    content, ends_at = bytearray(), monotonic() + FETCH_SECONDS
    with client.stream("GET", url, headers={"accept": f"{accepted}, application/json"}) as response:
        visited = [each.url.scheme for each in (*response.history, response)]
        if visited[0] == "https" and visited.count("https") < len(visited):
            raise WireError(f"{clip(url)!r} redirects to an address without https")
        if response.status_code != _OK:
            return int(response.status_code)
        for part in response.iter_bytes():
            content += part
            if monotonic() > ends_at:
                raise WireError(f"the document at {clip(url)!r} takes longer than {FETCH_SECONDS:g} seconds")
            if len(content) > MAX_DOCUMENT_BYTES:
                raise WireError(f"the document at {clip(url)!r} is longer than {MAX_DOCUMENT_BYTES:,} bytes")
        return bytes(content), str(response.headers.get("content-type", "")), response.url

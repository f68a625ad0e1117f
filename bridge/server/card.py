"""Server card and catalogue: documents by which clients find a server before they connect (SEP-2127)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bridge.errors import DefinitionError
from bridge.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from bridge.text import clip, short_repr
from bridge.tools.checks import require_type
from bridge.tools.specification import checked_icons
from bridge.wire.cards import CARD_SCHEMA, CARD_TYPE

if TYPE_CHECKING:
    from bridge.types import Json

_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_DESCRIPTION_CHARS = 100
_LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCard:
    """Description of a server for those who do not know it yet. Everybody can read it.

    Raises:
        DefinitionError: A value is invalid.
    """

    name: str | None = None
    """Name with a reversed domain and one slash: ``com.example/weather``; None for one of the host and the server's
    name."""
    description: str | None = None
    """At most 100 characters; None for the title."""
    website_url: str | None = None
    """Home page of the server."""
    repository: Mapping[str, str] | None = None
    """Source code: ``{"url": "https://github.com/…", "source": "github"}``."""
    icons: tuple[Mapping[str, Any], ...] = ()
    """Icons as MCP writes them: ``{"src": …, "mimeType": …, "sizes": […]}``."""

    def __post_init__(self) -> None:
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"the name of a card is a reversed domain, a slash and a name, such as 'com.example/weather', not "
                f"{short_repr(self.name)}"
            )
        for member in ("description", "website_url"):
            require_type(getattr(self, member), str | None, f"{member} of a card", "text")
        if self.description is not None and not 1 <= len(self.description) <= _MAX_DESCRIPTION_CHARS:
            raise DefinitionError(f"description of a card has 1 to {_MAX_DESCRIPTION_CHARS} characters")
        require_type(self.repository, Mapping | None, "repository of a card", "a mapping with url and source")
        object.__setattr__(self, "icons", checked_icons(self.icons, "the icons of a card"))

    def document(
        self,
        implementation: Mapping[str, str],
        *,
        http_url: str | None,
        sse_url: str | None = None,
        needs_key: bool = False,
    ) -> Json:
        """Return the card.

        Args:
            implementation: Name, version and title of the server, as it names itself to clients.
            http_url: URL of streamable HTTP; None if it is not served.
            sse_url: URL of SSE; None if it is not served.
            needs_key: True if requests need a key that is given to users in another way.
        """
        url = http_url or sse_url
        name, title = implementation["name"], implementation.get("title")
        found: Json = {
            "$schema": CARD_SCHEMA,
            "name": self.name or _name_of(name, url or ""),
            "version": implementation["version"] or "0.0.0",
            "description": self.description or clip(title or f"The MCP server {name}", _MAX_DESCRIPTION_CHARS - 1),
        }
        found |= {"title": clip(title, _MAX_DESCRIPTION_CHARS - 1)} if title else {}
        found |= {"websiteUrl": self.website_url} if self.website_url else {}
        found |= {"repository": dict(self.repository)} if self.repository else {}
        found |= {"icons": [dict(each) for each in self.icons]} if self.icons else {}
        remotes: list[Json] = []
        if http_url is not None:
            versions = [*HANDSHAKE_VERSIONS, *sorted(MODERN_VERSIONS)]
            remotes.append({"type": "streamable-http", "url": http_url, "supportedProtocolVersions": versions})
        if sse_url is not None:
            versions = [*HANDSHAKE_VERSIONS]
            remotes.append({"type": "sse", "url": sse_url, "supportedProtocolVersions": versions})
        if needs_key:
            variables = {"api_key": {"description": "A key of this server", "isRequired": True, "isSecret": True}}
            header = {"name": "Authorization", "value": "Bearer {api_key}", "isRequired": True, "isSecret": True}
            remotes = [{**each, "headers": [{**header, "variables": variables}]} for each in remotes]
        return found | {"remotes": remotes}


def catalog_of(card: Json, card_url: str) -> Json:
    """Return the catalogue of a host with one card."""
    domain, _, name = card["name"].partition("/")
    publisher = ".".join(reversed(domain.split(".")))
    entry = {"identifier": f"urn:air:{publisher}:mcp:{name}", "type": CARD_TYPE, "url": card_url}
    return {"specVersion": "1.0", "entries": [entry]}


def _name_of(name: str, url: str) -> str:
    """Return a name for a card: the domain of the URL reversed, and the server's name."""
    if _NAME.fullmatch(name):
        return name
    host = urlsplit(url).hostname or ""
    try:
        ip_address(host)
        domain = _LOCAL
    except ValueError:
        domain = ".".join(reversed(host.split("."))) if re.fullmatch(r"[A-Za-z0-9.-]+", host) else _LOCAL
    return f"{domain}/{_NOT_OF_A_NAME.sub('-', name).strip('-') or 'server'}"

"""Registries of MCP servers: search, and one server's description (registry API v0.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import httpx2

from bridge.client.discovery import FETCH_SECONDS, fetched
from bridge.client.transports.received_data import default_ssl_context
from bridge.errors import WireError
from bridge.text import short_repr
from bridge.types import require_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.types import Json

PAGE_SIZE = 100
"""Servers of one page, the most that a registry sends."""
MAX_PAGES = 20
"""Maximum pages of one search."""
_OFFICIAL = "io.modelcontextprotocol.registry/official"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class RegisteredServer:
    """A server of a registry, in one version."""

    document: Json
    """Its ``server.json``."""
    status: str
    """``active``, ``deprecated`` or ``deleted``."""

    @property
    def name(self) -> str:
        """Name with a reversed domain: ``io.github.ada/weather``."""
        return str(self.document.get("name", ""))


class Registry:
    """A registry.

    Args:
        url: Address before ``/v0.1``.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/").removesuffix("/v0.1")

    def search(self, words: str, limit: int) -> list[RegisteredServer]:
        """Return the newest versions of the servers that a registry finds, without deleted ones.

        Args:
            words: Text to search for.
            limit: Maximum number of servers.

        Raises:
            WireError: The registry cannot be reached, or its response is malformed.
        """
        found: list[RegisteredServer] = []
        for each in self._pages({"search": words, "version": "latest", "limit": str(min(limit, PAGE_SIZE))}):
            if each.status != "deleted":
                found.append(each)
            if len(found) == limit:
                break
        return found

    def server(self, name: str, version: str = "latest") -> RegisteredServer | None:
        """Return a server by its whole name; None if there is none of this name and version.

        Raises:
            WireError: The registry cannot be reached, or its response is malformed.
        """
        path = f"/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
        with self._client() as client:
            answer = fetched(client, f"{self._url}/v0.1{path}", _JSON, is_required=True)
        found = None if answer is None else _server_in(answer.document)
        if found is not None and found.name != name:
            raise WireError(f"the registry answered with {short_repr(found.name)} instead of {name!r}")
        return found

    def _pages(self, query: dict[str, str]) -> Iterator[RegisteredServer]:
        with self._client() as client:
            for _ in range(MAX_PAGES):
                url = f"{self._url}/v0.1/servers?{urlencode(query)}"
                answer = fetched(client, url, _JSON, is_required=True)
                if answer is None or not isinstance(servers := answer.document.get("servers"), list):
                    raise WireError(f"there is no registry at {self._url}: no list of servers")
                yield from map(_server_in, servers)
                metadata = answer.document.get("metadata")
                cursor = metadata.get("nextCursor") if isinstance(metadata, dict) else None
                if not cursor or cursor == query.get("cursor"):
                    return
                query = {**query, "cursor": str(cursor)}

    def _client(self) -> httpx2.Client:
        return httpx2.Client(timeout=FETCH_SECONDS, verify=default_ssl_context(), follow_redirects=True)


def _server_in(answer: Any) -> RegisteredServer:
    entry = require_object(answer, "a server of the registry")
    official = require_object(entry.get("_meta") or {}, "'_meta' of the registry").get(_OFFICIAL) or {}
    official = require_object(official, f"{_OFFICIAL!r} of the registry")
    return RegisteredServer(
        require_object(entry.get("server"), "'server' of the registry"), str(official.get("status", "active"))
    )

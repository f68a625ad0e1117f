"""URIs of several servers' resources, kept apart: ``file:///a.txt`` of the server ``docs`` is ``docs+file:///a.txt``.

    one server     URIs are unchanged
    always         the server's name and ``+`` are prepended; a URI of an app keeps its scheme: ``ui://docs/page``
    on_collision   they are prepended only if another server lists the same URI, or a template that begins the same up
                   to its first variable, and to URIs that no server lists
    never          such a resource is left out

The name in a URI is the server's in lower case, with a hash if two servers would have the same. It depends on the
configured servers only, and a URI that begins with one belongs to that server in every mode.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bridge.resources.namespaces import (
    localized,
    localized_json,
    namespace_of,
    split_namespace,
    with_namespace,
)
from bridge.tools.content import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.config.servers import Prefixing
    from bridge.types import Json

_HASH_CHARS = 8
B = TypeVar("B", bound=Block)


class RemoteUri(NamedTuple):
    """Server of a resource, and its URI there."""

    server: str
    """The server's name in the configuration."""
    uri: str
    """The URI, or the text of a template, on the server."""


class UriNames:
    """Local URIs of the resources of servers."""

    def __init__(self) -> None:
        self._modes: Mapping[str, Prefixing] = {}
        self._names: dict[str, str] = {}
        self._servers: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._alone: str | None = None

    def assign(self, servers: Mapping[str, Prefixing], listed: Mapping[str, Iterable[str]]) -> frozenset[RemoteUri]:
        """Assign URIs anew.

        Args:
            servers: All configured servers, also those whose resources are not known yet, with their prefixing.
            listed: URIs and texts of templates that each server lists.

        Returns:
            The resources and templates that are left out, because another server has the same URI, or a template that
            begins the same, and prefixing is ``never``.
        """
        self._modes = dict(servers)
        self._names = _names_in_uris(servers)
        self._servers = {name: server for server, name in self._names.items()}
        alone = next(iter(servers)) if len(servers) == 1 else None
        self._alone = alone if alone is not None and servers[alone] != "always" else None
        wishes = Counter(
            wish for server, uris in listed.items() if servers[server] != "always" for wish in set(map(_wish, uris))
        )
        self._plain = {}
        left_out: set[RemoteUri] = set()
        for server, uris in listed.items():
            if servers[server] == "always" or self._alone is not None:
                continue
            for uri in uris:
                if wishes[_wish(uri)] == 1 and self._split(uri) is None:
                    self._plain[uri] = server
                elif servers[server] == "never":
                    left_out.add(RemoteUri(server, uri))
        return frozenset(left_out)

    @property
    def are_unchanged(self) -> bool:
        """True if the local URIs are those of the servers: there is one."""
        return self._alone is not None or not self._names

    def local(self, server: str, uri: str) -> str:
        """Return the local URI of a server's resource, or the local text of a template."""
        if server == self._alone or self._plain.get(uri) == server or server not in self._names:
            return uri
        return with_namespace(self._names[server], uri)

    def remote(self, uri: str) -> RemoteUri | None:
        """Return the server and remote URI of a local one; None if it is no server's."""
        if self._alone is not None:
            return RemoteUri(self._alone, uri)
        if (server := self._plain.get(uri)) is not None:
            return RemoteUri(server, uri)
        return self._split(uri)

    def of_server(self, server: str, uri: str) -> str:
        """Return the URI on a server of a resource that it reads, given by its local URI."""
        remote = self.remote(uri)
        return remote.uri if remote is not None and remote.server == server else uri

    def localized(self, server: str, content: B) -> B:
        """Return a content block of a server with a local URI, if it has a URI."""
        return content if self.are_unchanged else localized(content, partial(self.local, server))

    def localized_json(self, server: str, block: Json) -> Json:
        """Return MCP's ``ContentBlock`` of a server, or contents of a resource, with a local URI, if it has a URI."""
        return localized_json(block, partial(self.local, server))

    def _split(self, uri: str) -> RemoteUri | None:
        found = split_namespace(uri)
        return RemoteUri(self._servers[found[0]], found[1]) if found is not None and found[0] in self._servers else None


def is_within(whole: str, uri: str) -> bool:
    """Return True for the URI of a resource, and of a part of it."""
    return uri == whole or (uri.startswith(whole) and (whole.endswith("/") or uri[len(whole)] in "/?#"))


def _wish(uri: str) -> str:
    """Return what no other server may have: a URI, or the beginning of a template up to its first variable."""
    return "".join(uri.partition("{")[:2])


def _names_in_uris(servers: Iterable[str]) -> dict[str, str]:
    """Return a name for each server that may begin a URI, and has no ``+``."""
    cleaned = {server: namespace_of(server) for server in servers}
    rivals = Counter(cleaned.values())
    names = {server: name for server, name in cleaned.items() if server == name or rivals[name] == 1}
    for server in sorted(cleaned.keys() - names.keys()):
        hashed = (f"{cleaned[server]}-{_hash(server, attempt)}" for attempt in count())
        names[server] = next(name for name in hashed if name not in names.values())
    return names


def _hash(server: str, attempt: int) -> str:
    return sha256(f"{server}\0{attempt}".encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]

"""Names of remote tools: unique, safe, and independent of the order of servers and of which of them are up.

    always         the server's name stands before each tool's: `files_read`
    on_collision   only before a name that a local tool, or a tool of another server, has too
    never          such a tool is left out

A name that begins with a server's prefix (`files_`) belongs to that server in every mode: no other server's tool gets
it, whatever that server lists. So a name with a prefix depends on the configured servers and on its own server's list.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from bridge.tools.toolbox import MAX_NAME_CHARS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

Prefixing: TypeAlias = Literal["always", "on_collision", "never"]
"""When a server's name stands before the names of its tools."""

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_HASH_CHARS = 8
_MAX_PREFIX_CHARS = 64
_PLAIN, _PREFIXED, _CHANGED = range(3)
"""The right of a tool to a name: it is its own, it is with the server's name, a character had to be changed."""


class RemoteName(NamedTuple):
    """A tool's server and its name there."""

    server: str
    """The server's name, as it is configured."""
    tool: str
    """The tool's name on the server."""


class NamedServer(NamedTuple):
    """A configured server, and how its tools are named."""

    name: str
    """Its name, as it is configured."""
    prefixing: Prefixing = "on_collision"
    """When its name stands before the names of its tools."""
    prefix: str = ""
    """The text that its configuration puts before the names; it is in the wishes already."""


def local_names(
    wishes: Mapping[RemoteName, str], servers: Iterable[NamedServer], *, taken: Collection[str] = ()
) -> dict[RemoteName, str]:
    """Names for tools that are safe, bounded, and all different.

    Args:
        wishes: The name of each tool where nothing stands in its way.
        servers: All configured servers, also those whose tools are not known yet.
        taken: Names that none of the tools may get.

    Returns:
        The name of each tool, in the order of the wishes, without those that are left out.
    """
    return _Names({server.name: server for server in servers}, taken).of(wishes)


class _Names:
    def __init__(self, servers: Mapping[str, NamedServer], taken: Collection[str]) -> None:
        self._servers = servers
        self._taken = frozenset(taken)
        self._prefixes = _server_prefixes(servers)
        self._owners: defaultdict[str, set[str]] = defaultdict(set)
        for name, prefix in self._prefixes.items():
            self._owners[prefix].add(name)
        for server in servers.values():
            if server.prefix and server.prefix not in self._prefixes.values():
                self._owners[server.prefix].add(server.name)
        self._lengths = sorted({len(prefix) for prefix in self._owners}, reverse=True)

    def of(self, wishes: Mapping[RemoteName, str]) -> dict[RemoteName, str]:
        plain = {origin: _clean(wish) for origin, wish in wishes.items()}
        wishers: defaultdict[str, set[str]] = defaultdict(set)
        for origin, name in plain.items():
            if self._servers[origin.server].prefixing != "always" and self._may_have(origin.server, name):
                wishers[name].add(origin.server)
        wanted: dict[RemoteName, str] = {}
        ranks: dict[RemoteName, int] = {}
        for origin, name in plain.items():
            prefixing = self._servers[origin.server].prefixing
            is_free = wishers[name] == {origin.server} and name not in self._taken
            if prefixing == "never" and not is_free:
                continue
            is_plain = prefixing != "always" and is_free
            wanted[origin] = name if is_plain else self._prefixes[origin.server] + name
            ranks[origin] = (_PLAIN if is_plain else _PREFIXED) if name == wishes[origin] else _CHANGED
        possible = {
            origin: name
            for origin, name in wanted.items()
            if 0 < len(name) <= MAX_NAME_CHARS and name not in self._taken and self._may_have(origin.server, name)
        }
        named = {origin: possible[origin] for origin in possible.keys() - _losers(possible, ranks)}
        used = {*named.values(), *self._taken}
        for origin in sorted(wanted.keys() - named.keys()):
            named[origin] = next(
                name
                for name in self._hashed(wanted[origin], plain[origin], origin)
                if name not in used and self._may_have(origin.server, name)
            )
            used.add(named[origin])
        return {origin: named[origin] for origin in wishes if origin in named}

    def _may_have(self, server: str, name: str) -> bool:
        """The name begins with no other server's prefix, or with a longer one of this server."""
        owners = (self._owners[name[:length]] for length in self._lengths if name[:length] in self._owners)
        return server in next(owners, {server})

    def _hashed(self, wanted: str, plain: str, origin: RemoteName) -> Iterator[str]:
        """Names with a hash: at the end, or behind the server's name where the end does not help."""
        for attempt in count():
            digest = _hash(*origin, str(attempt))
            yield f"{wanted[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"
            yield f"{self._prefixes[origin.server]}{digest}_{plain}"[:MAX_NAME_CHARS]


def _losers(wanted: Mapping[RemoteName, str], ranks: Mapping[RemoteName, int]) -> set[RemoteName]:
    """The tools that need another name, because a tool of their server has this one with more right.

    Of several tools, the one that is called exactly so keeps the name; nobody does where there is none or a second.
    """
    rivals: defaultdict[str, list[RemoteName]] = defaultdict(list)
    for origin, name in wanted.items():
        rivals[name].append(origin)
    losers: set[RemoteName] = set()
    for origins in rivals.values():
        if len(origins) > 1:
            first = min(ranks[origin] for origin in origins)
            best = [origin for origin in origins if ranks[origin] == first]
            losers.update(origins if len(best) > 1 or first == _CHANGED else set(origins) - set(best))
    return losers


def _server_prefixes(servers: Iterable[str]) -> dict[str, str]:
    """The text before the tools of each server: its name and an underscore; a hash where two would have the same."""
    cleaned = {name: _clean(name)[: _MAX_PREFIX_CHARS - 1] for name in servers}
    rivals = Counter(cleaned.values())
    prefixes = {name: each for name, each in cleaned.items() if name == each or rivals[each] == 1}
    for name in sorted(cleaned.keys() - prefixes.keys()):
        stem = cleaned[name][: _MAX_PREFIX_CHARS - _HASH_CHARS - 2]
        hashed = (f"{stem}-{_hash(name, str(attempt))}" for attempt in count())  # not within the other's names
        prefixes[name] = next(each for each in hashed if each not in prefixes.values())
    return {name: f"{prefix}_" for name, prefix in prefixes.items()}


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]

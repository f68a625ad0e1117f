"""Names, filters and status of the tools of many servers.

Names of remote tools: unique, safe, and independent of the order of servers and of which of them are up.

    always         the server's name stands before each tool's: `files_read`
    on_collision   only before a name that a local tool, or a tool of another server, has too
    never          such a tool is left out

A name that begins with a server's prefix (`files_`) belongs to that server in every mode: no other server's tool gets
it, whatever that server lists. So a name with a prefix depends on the configured servers and on its own server's list.

Catalogue: the tools of many servers under one roof, each under a name of its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

from bridge.client.config.servers import Prefixing
from bridge.errors import DefinitionError
from bridge.tools.toolbox import MAX_NAME_CHARS
from bridge.tools.transform import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.state import ConnectionStatus
    from bridge.errors import ServerError
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")

_HASH_CHARS = 8

_MAX_PREFIX_CHARS = 64

_PLAIN, _PREFIXED, _CHANGED = range(3)
"""The right of a tool to a name: it is its own, it is with the server's name, a character had to be changed."""

ToolFilter: TypeAlias = "Callable[[str, ToolSpecification], bool]"
"""Says whether a tool is taken, by its server's name and as the server lists it."""

NameMapper: TypeAlias = "Callable[[str, ToolSpecification], str]"
"""Says what a tool is to be called, by its server's name and as the server lists it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChange:
    """What became of a provider's tools; all by the names that they have here."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Those that are described otherwise than before."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """One server of a provider at one moment."""

    connection: ConnectionStatus
    """How its connection is."""
    required: bool
    """There is nothing to offer without it."""
    is_listed: bool
    """Its tools have been listed at least once."""
    tools: tuple[str, ...]
    """The tools that it contributes, by the names that they have here."""
    problem: ServerError | None = None
    """Why it could not be reached, or its tools not be listed, the last time; None where they could."""
    skipped: tuple[str, ...] = ()
    """What it lists that is no tool, or not as it was pinned, and is left out, each with the reason."""

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.connection.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCatalog:
    """Tools under the names that they have here, and where they come from."""

    tools: tuple[Tool, ...] = ()
    """In the order of the servers, and of each server's list."""
    origins: Mapping[str, RemoteName]
    """For each name here, the server and the name there."""
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each server that has some, its tools that may not have their names, each a sentence."""

    def of_server(self, server: str) -> tuple[str, ...]:
        """The names here of a server's tools."""
        return tuple(name for name, origin in self.origins.items() if origin.server == server)

    def change_from(self, before: ToolCatalog) -> ToolsChange:
        """What is other than it was."""
        old = {tool.name: tool for tool in before.tools}
        new = {tool.name: tool for tool in self.tools}
        return ToolsChange(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name, tool in new.items() if name in old and tool != old[name]),
        )


EMPTY = ToolCatalog(origins={})
"""No tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRules:
    """Which tools of servers are taken, and what they are called."""

    filter: ToolFilter | None = None
    """Which tools are taken of those that the configuration admits; None for all."""
    name_mapper: NameMapper | None = None
    """What tools are to be called; None for their own names after the configured prefix."""
    prefix: Prefixing | None = None
    """When a server's name stands before those of its tools. None for what the server's configuration says, and where
    that says nothing: always where there are several servers, on a collision where there is one."""

    def __post_init__(self) -> None:
        if self.prefix is not None and self.prefix not in get_args(Prefixing):
            raise DefinitionError(f"prefix is 'always', 'on_collision', 'never' or None, not {self.prefix!r}")

    def catalogue(
        self,
        servers: Iterable[tuple[ServerConfig, Iterable[Tool]]],
        beside: Iterable[Tool] = (),
        taken: Collection[str] = (),
    ) -> ToolCatalog:
        """The tools of these servers, and others beside them that keep their names.

        Args:
            servers: All servers, also those whose tools are not known: the names must not depend on that.
            beside: The others.
            taken: Names that none of the servers' tools may get.

        Raises:
            DefinitionError: The name mapper gives no name.
        """
        servers, beside = list(servers), tuple(beside)
        default: Prefixing = "always" if len(servers) > 1 else "on_collision"
        tools: dict[RemoteName, Tool] = {}
        wishes: dict[RemoteName, str] = {}
        for config, its_tools in servers:
            for tool in its_tools:
                if self._takes(config, tool):
                    origin = RemoteName(config.name, tool.name)
                    tools[origin] = tool
                    wishes[origin] = self._wish(config, tool)
        names = local_names(
            wishes,
            [self._named(config, default) for config, _ in servers],
            taken={*taken, *(tool.name for tool in beside)},
        )
        left_out: dict[str, tuple[str, ...]] = {}
        for server, tool_name in tools.keys() - names.keys():
            reason = (
                f"the name of the tool {tool_name!r} is taken, or begins with another server's, and prefix is never"
            )
            left_out[server] = (*left_out.get(server, ()), reason)
        return ToolCatalog(
            tools=(*(renamed(tools[origin], name) for origin, name in names.items()), *beside),
            origins={name: origin for origin, name in names.items()},
            left_out={server: tuple(sorted(reasons)) for server, reasons in left_out.items()},
        )

    def _named(self, config: ServerConfig, default: Prefixing) -> NamedServer:
        prefixing = self.prefix or config.prefixing or default
        if prefixing == "always" and (config.prefix is not None or self.name_mapper is not None):
            prefixing = "on_collision"
        return NamedServer(config.name, prefixing, config.prefix or "")

    def _takes(self, config: ServerConfig, tool: Tool) -> bool:
        return config.admits(tool.name) and (self.filter is None or self.filter(config.name, tool.specification))

    def _wish(self, config: ServerConfig, tool: Tool) -> str:
        if self.name_mapper is None:
            return (config.prefix or "") + tool.name
        name: Any = self.name_mapper(config.name, tool.specification)
        if not isinstance(name, str) or not name:
            raise DefinitionError(
                f"the name mapper gave {name!r} for {tool.name!r} of the server {config.name!r}: it must give a name"
            )
        return str(name)

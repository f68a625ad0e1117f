"""Local names, filters and status of remote tools.

The catalog gives each tool a name that is unique, valid, and independent of the order and availability of servers:

    always         the server's name is prepended to each tool name: `files_read`
    on_collision   it is prepended only if a local tool or another server's tool has the same name
    never          such a tool is left out

A name that begins with a server's prefix (`files_`) is reserved for that server in every mode. So a prefixed name
depends only on the configured servers and on its own server's list.
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
from bridge.types import FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.status import ConnectionStatus
    from bridge.errors import ServerError
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool
    from bridge.types import Feature

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")
_HASH_CHARS = 8
_MAX_PREFIX_CHARS = 64

_PLAIN, _PREFIXED, _CHANGED = range(3)
"""Priority of a tool for a name: its own name, its prefixed name, or a name with replaced characters."""

ToolFilter: TypeAlias = "Callable[[str, ToolSpecification], bool]"
"""Return True to use the tool; called with the server's name and the tool as listed."""

NameMapper: TypeAlias = "Callable[[str, ToolSpecification], str]"
"""Return the tool's local name; called with the server's name and the tool as listed."""


class RemoteName(NamedTuple):
    """Server and remote name of a tool."""

    server: str
    """The server's name in the configuration."""
    tool: str
    """The tool's name on the server."""


class NamedServer(NamedTuple):
    """A configured server and its naming rules."""

    name: str
    """The server's name in the configuration."""
    prefixing: Prefixing = "on_collision"
    """When the server's name is prepended to its tool names."""
    prefix: str = ""
    """Configured text before the tool names; already part of the wanted names."""


def local_names(
    wishes: Mapping[RemoteName, str], servers: Iterable[NamedServer], *, taken: Collection[str] = ()
) -> dict[RemoteName, str]:
    """Assign unique, valid names of limited length to tools.

    Args:
        wishes: The wanted name of each tool.
        servers: All configured servers, including those whose tools are not known yet.
        taken: Names that no tool may get.

    Returns:
        The name of each tool, in the order of ``wishes``, without the tools that are left out.
    """
    return _Names({server.name: server for server in servers}, taken).of(wishes)


class _Names:
    def __init__(self, servers: Mapping[str, NamedServer], taken: Collection[str]) -> None:
        self._servers = servers
        self._taken = frozenset(taken)
        self._prefixes = server_prefixes(servers)
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
        """Return True unless the longest matching prefix belongs to another server."""
        return server in (self.owners_of(name) or {server})

    def owners_of(self, name: str) -> frozenset[str]:
        """Return the servers with the longest prefix that a name begins with."""
        owners = (self._owners[name[:length]] for length in self._lengths if name[:length] in self._owners)
        return frozenset(next(owners, ()))

    def _hashed(self, wanted: str, plain: str, origin: RemoteName) -> Iterator[str]:
        """Candidate names with a hash at the end, or after the server's name."""
        for attempt in count():
            digest = _hash(*origin, str(attempt))
            yield f"{wanted[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"
            yield f"{self._prefixes[origin.server]}{digest}_{plain}"[:MAX_NAME_CHARS]


def _losers(wanted: Mapping[RemoteName, str], ranks: Mapping[RemoteName, int]) -> set[RemoteName]:
    """Tools that need another name, because a tool of the same server has priority for this one.

    Among tools with the same wanted name, the one with the unchanged name keeps it. If there are none or several, all
    of them are renamed.
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


def server_prefixes(servers: Iterable[str]) -> dict[str, str]:
    """Prefix of each server: its name and an underscore, with a hash if two servers would get the same prefix."""
    cleaned = {name: _clean(name)[: _MAX_PREFIX_CHARS - 1] for name in servers}
    rivals = Counter(cleaned.values())
    prefixes = {name: each for name, each in cleaned.items() if name == each or rivals[each] == 1}
    for name in sorted(cleaned.keys() - prefixes.keys()):
        stem = cleaned[name][: _MAX_PREFIX_CHARS - _HASH_CHARS - 2]
        hashed = (f"{stem}-{_hash(name, str(attempt))}" for attempt in count())  # no underscore
        prefixes[name] = next(each for each in hashed if each not in prefixes.values())
    return {name: f"{prefix}_" for name, prefix in prefixes.items()}


def _clean(name: str) -> str:
    return _FORBIDDEN.sub("_", name)


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsChange:
    """Change of a provider's tools, by local name."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Tools whose specification differs from before."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """Status of one server of a provider."""

    connection: ConnectionStatus
    """The connection's status."""
    required: bool
    """True if `McpToolProvider.open` fails without this server."""
    is_listed: bool
    """True after the tools were listed at least once."""
    tools: tuple[str, ...]
    """The server's tools, by local name."""
    problem: ServerError | None = None
    """The last error when connecting or listing; None after a success."""
    caller_connections: int = 0
    """Number of open connections of callers of their own, of a server over stdio as many processes."""
    skipped: tuple[str, ...] = ()
    """Listed tools that are left out (malformed, or not as pinned), each with the reason."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.connection.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCatalog:
    """Tools by local name, and their origins."""

    tools: tuple[Tool, ...] = ()
    """In the order of the servers, then of each server's list."""
    origins: Mapping[str, RemoteName]
    """Server and remote name of each tool, by local name."""
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each server, the tools left out because their names are taken, each as a sentence."""

    def change_from(self, before: ToolCatalog) -> ToolsChange:
        """Compute the difference from an earlier catalog."""
        old = {tool.name: tool for tool in before.tools}
        new = {tool.name: tool for tool in self.tools}
        return ToolsChange(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name, tool in new.items() if name in old and tool != old[name]),
        )


EMPTY = ToolCatalog(origins={})
"""The empty catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogRules:
    """Filter and naming rules of a catalog."""

    filter: ToolFilter | None = None
    """Selects tools among those that the configuration allows; None for all."""
    name_mapper: NameMapper | None = None
    """Returns a tool's local name; None for its own name after the configured prefix."""
    prefix: Prefixing | None = None
    """When the server's name is prepended to its tool names. None uses the server's configuration; without a value
    there, ``always`` with several servers and ``on_collision`` with one."""

    def __post_init__(self) -> None:
        if self.prefix is not None and self.prefix not in get_args(Prefixing):
            raise DefinitionError(f"prefix must be 'always', 'on_collision', 'never' or None, not {self.prefix!r}")

    def build(
        self,
        servers: Iterable[tuple[ServerConfig, Iterable[Tool]]],
        beside: Iterable[Tool] = (),
        taken: Collection[str] = (),
    ) -> ToolCatalog:
        """Build the catalog of these servers and of additional tools, which keep their names.

        All servers are given, including those whose tools are not known yet, since names must not depend on that.

        Raises:
            DefinitionError: The name mapper returned an invalid name.
        """
        servers, beside = list(servers), tuple(beside)
        default = _default(servers)
        tools: dict[RemoteName, Tool] = {}
        wishes: dict[RemoteName, str] = {}
        for config, its_tools in servers:
            for tool in its_tools:
                if config.admits(tool.name) and (self.filter is None or self.filter(config.name, tool.specification)):
                    origin = RemoteName(config.name, tool.name)
                    tools[origin] = tool
                    wishes[origin] = self._wish(config, tool)
        names = local_names(
            wishes,
            [self._named(config, default, has_mapper=self.name_mapper is not None) for config, _ in servers],
            taken={*taken, *(tool.name for tool in beside)},
        )
        left_out: dict[str, tuple[str, ...]] = {}
        for server, tool_name in tools.keys() - names.keys():
            reason = (
                f"the name of the tool {tool_name!r} is taken or begins with another server's prefix, "
                "and prefix is 'never'"
            )
            left_out[server] = (*left_out.get(server, ()), reason)
        return ToolCatalog(
            tools=(*(renamed(tools[origin], name) for origin, name in names.items()), *beside),
            origins={name: origin for origin, name in names.items()},
            left_out={server: tuple(sorted(reasons)) for server, reasons in left_out.items()},
        )

    def owners_of(self, name: str, configs: Collection[ServerConfig]) -> frozenset[str]:
        """Return the servers for which a local name is reserved by its prefix; empty if it is for none."""
        default = _default(configs)
        servers = [self._named(config, default, has_mapper=self.name_mapper is not None) for config in configs]
        return _Names({server.name: server for server in servers}, ()).owners_of(name)

    def prompt_names(
        self, servers: Mapping[str, tuple[ServerConfig, Iterable[str]]], taken: Collection[str] = ()
    ) -> dict[RemoteName, str]:
        """Return the local names of the prompts of these servers, given by their names there, without those left out.

        They are named like tools, except that a name mapper is for tools only.
        """
        wishes = {
            RemoteName(server, name): (config.prefix or "") + name
            for server, (config, names) in servers.items()
            for name in names
        }
        default = _default(servers)
        return local_names(wishes, [self._named(config, default) for config, _ in servers.values()], taken=taken)

    def uri_modes(self, configs: Collection[ServerConfig]) -> dict[str, Prefixing]:
        """Return when each server's name is prepended to the URIs of its resources, by server name."""
        default = _default(configs)
        modes = {config.name: self.prefix or config.prefixing or default for config in configs}
        return modes | {config.name: "on_collision" for config in configs if config.prefix == ""}

    def _named(self, config: ServerConfig, default: Prefixing, *, has_mapper: bool = False) -> NamedServer:
        prefixing = self.prefix or config.prefixing or default
        if prefixing == "always" and (config.prefix is not None or has_mapper):
            prefixing = "on_collision"
        return NamedServer(config.name, prefixing, config.prefix or "")

    def _wish(self, config: ServerConfig, tool: Tool) -> str:
        if self.name_mapper is None:
            return (config.prefix or "") + tool.name
        name: Any = self.name_mapper(config.name, tool.specification)
        if not isinstance(name, str) or not name:
            raise DefinitionError(
                f"the name mapper returned {name!r} for {tool.name!r} of the server {config.name!r}: "
                "it must return a non-empty string"
            )
        return str(name)


def _default(servers: Collection[object]) -> Prefixing:
    return "always" if len(servers) > 1 else "on_collision"


def checked_features(features: Collection[Feature]) -> Collection[Feature]:
    """Return features that are named by a program.

    Raises:
        DefinitionError: One is unknown.
    """
    if not all(each in FEATURES for each in features):
        raise DefinitionError(f"features must be some of {', '.join(map(repr, FEATURES))}, not {features!r}")
    return features

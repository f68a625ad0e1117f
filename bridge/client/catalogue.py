"""Catalogue: the tools of many servers under one roof, each under a name of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from bridge.client.tool_catalog import NamedServer, Prefixing, RemoteName, local_names
from bridge.errors import DefinitionError
from bridge.tools.transform import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from bridge.client.config.servers import ServerConfig
    from bridge.client.states import ConnectionStatus
    from bridge.errors import ServerError
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool

ToolFilter: TypeAlias = "Callable[[str, ToolSpecification], bool]"
"""Says whether a tool is taken, by its server's name and as the server lists it."""

NameMapper: TypeAlias = "Callable[[str, ToolSpecification], str]"
"""Says what a tool is to be called, by its server's name and as the server lists it."""


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
class Catalogue:
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

    def change_from(self, before: Catalogue) -> ToolsChange:
        """What is other than it was."""
        old = {tool.name: tool for tool in before.tools}
        new = {tool.name: tool for tool in self.tools}
        return ToolsChange(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name, tool in new.items() if name in old and tool != old[name]),
        )


EMPTY = Catalogue(origins={})
"""No tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cataloguing:
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
    ) -> Catalogue:
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
        return Catalogue(
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

"""Servers of the page as entries of an ``mcp.json``, which the page can change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from bridge.client.config.formats import is_disabled
from bridge.inspector.snippets import Origin

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig
    from bridge.types import Json

_SWITCHES = frozenset({"disabled", "enabled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenServer:
    """A server of the page, which may be disabled."""

    name: str
    """Name in the page."""
    config: ServerConfig | None
    """The server; None for a disabled one whose entry was not read."""
    entry: Json = field(default_factory=dict)
    """Its entry in an ``mcp.json``, as written: references such as ``${TOKEN}`` are not expanded."""
    origin: Origin = field(default_factory=Origin)
    """Target that it comes from."""
    saved_name: str | None = None
    """Name in the file; None for a server that is not of the file."""

    @property
    def is_disabled(self) -> bool:
        """True for a server that is not connected to."""
        return is_disabled(self.entry)

    def differs_by_switch(self, entry: Json) -> bool:
        """True for an entry that enables or disables this server, and changes nothing else."""
        return _settings(self.entry) == _settings(entry)


class Configuration(Protocol):
    """Reads entries of servers, and writes them to the file that the page was opened with."""

    path: str | None
    """The file; None if there is none, or more than one."""

    def read(self, name: str, entry: Json, *, is_saved: bool) -> tuple[ServerConfig, Origin]:
        """Read an entry.

        Raises:
            ConfigError: It is invalid, or the file is.
        """
        ...

    def save(self, name: str, entry: Json) -> None:
        """Write an entry to the file; the rest of the file is unchanged.

        Raises:
            BridgeError: The file cannot be written.
        """
        ...


def _settings(entry: Json) -> Json:
    return {key: value for key, value in entry.items() if key not in _SWITCHES}

"""Clients: programs that start MCP servers, and the files in which they are told of them.

claude-desktop  macOS    ~/Library/Application Support/Claude/claude_desktop_config.json
                Windows  %APPDATA%/Claude/claude_desktop_config.json
                Linux    $XDG_CONFIG_HOME/Claude/claude_desktop_config.json
claude-code     .mcp.json of the project
cursor          ~/.cursor/mcp.json
vscode          .vscode/mcp.json of the project
mcp-json        mcp.json in the working directory
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.cli.client_entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One such program."""

    title: str | None = None
    """What people call it; None for a file that any program may read."""
    file: Callable[[], Path]
    """Where its configuration is."""
    section: str = "mcpServers"
    """The key under which it names servers."""
    types_commands: bool = False
    """It wants ``type`` to be said of a command too."""
    takes_urls: bool = True
    """Its file may name servers behind URLs."""

    def adapted(self, entry: Entry) -> Entry:
        """An entry as this client wants it.

        Raises:
            TargetError: It does not take such an entry.
        """
        if "url" in entry and not self.takes_urls:
            raise TargetError(f"the configuration of {self.title} takes no URLs: add it as a connector in its settings")
        if "command" in entry and self.types_commands:
            return {"type": "stdio", **entry}
        return entry


def _claude_desktop_file() -> Path:
    if sys.platform == "darwin":
        directory = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        directory = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return directory / "Claude" / "claude_desktop_config.json"


CLIENTS = {
    "claude-desktop": Client(title="Claude Desktop", file=_claude_desktop_file, takes_urls=False),
    "claude-code": Client(title="Claude Code", file=lambda: Path.cwd() / ".mcp.json"),
    "cursor": Client(title="Cursor", file=lambda: Path.home() / ".cursor" / "mcp.json"),
    "vscode": Client(
        title="VS Code",
        file=lambda: Path.cwd() / ".vscode" / "mcp.json",
        section="servers",
        types_commands=True,
    ),
    "mcp-json": Client(file=lambda: Path.cwd() / "mcp.json"),
}
"""The clients by the name that ``--client`` takes."""

"""MCP clients: their configuration files, and the logs that they write.

claude-desktop  macOS    ~/Library/Application Support/Claude/claude_desktop_config.json
                Windows  %APPDATA%/Claude/claude_desktop_config.json
                Linux    $XDG_CONFIG_HOME/Claude/claude_desktop_config.json
claude-code     .mcp.json of the project
cursor          ~/.cursor/mcp.json
vscode          .vscode/mcp.json of the project
gemini-cli      ~/.gemini/settings.json
windsurf        ~/.codeium/windsurf/mcp_config.json
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

    from bridge.cli.install.client_entries import Entry

_LOG_BYTES = 16 * 1024
"""Bytes at the end of a log that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An MCP client and its configuration file."""

    name: str
    """Name for ``--client``."""
    title: str | None = None
    """Display name; None for a file that any program may read."""
    file: Callable[[], Path]
    """Path of the configuration file."""
    section: str = "mcpServers"
    """Key of the servers in the file."""
    types_commands: bool = False
    """True if entries with a command need ``type``."""
    takes_urls: bool = True
    """True if entries may have a URL."""
    url_key: str = "url"
    """Key of the URL of a server over streamable HTTP, whose entry has no ``type`` under another key."""
    log: Callable[[str], Path] | None = None
    """Path of the log of a server, by its name; None if the client shows logs in its own window alone."""
    check: str = ""
    """The part of the client that shows its servers and their state."""

    def adapted(self, entry: Entry) -> Entry:
        """Adapt an entry to this client.

        Raises:
            TargetError: The client does not support the entry.
        """
        if "url" in entry:
            if not self.takes_urls:
                raise TargetError(
                    f"the configuration of {self.title} supports no URLs: add it as a connector in its settings"
                )
            if self.url_key != "url":
                return {self.url_key: entry["url"], **{k: v for k, v in entry.items() if k not in {"url", "type"}}}
        if "command" in entry and self.types_commands:
            return {"type": "stdio", **entry}
        return entry

    def last_lines(self, server: str, count: int) -> tuple[Path, list[str]] | None:
        """Return the log of a server and its last lines; None if there is none, or it cannot be read."""
        if self.log is None:
            return None
        path = self.log(server)
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LOG_BYTES))
                lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return None
        return path, [line for line in lines if line.strip()][-count:]


def _claude_folder() -> Path:
    if sys.platform == "darwin":
        directory = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        directory = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    else:
        directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return directory / "Claude"


def _claude_log(server: str) -> Path:
    logs = Path.home() / "Library" / "Logs" / "Claude" if sys.platform == "darwin" else _claude_folder() / "logs"
    return logs / f"mcp-server-{Path(server).name}.log"


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            file=lambda: _claude_folder() / "claude_desktop_config.json",
            takes_urls=False,
            log=_claude_log,
            check="Settings, Developer",
        ),
        Client(
            name="claude-code", title="Claude Code", file=lambda: Path.cwd() / ".mcp.json", check="the command /mcp"
        ),
        Client(
            name="cursor",
            title="Cursor",
            file=lambda: Path.home() / ".cursor" / "mcp.json",
            check="Settings, Tools & MCP; its output channel MCP Logs",
        ),
        Client(
            name="vscode",
            title="VS Code",
            file=lambda: Path.cwd() / ".vscode" / "mcp.json",
            section="servers",
            types_commands=True,
            check="the command MCP: List Servers, Show Output",
        ),
        Client(
            name="gemini-cli",
            title="Gemini CLI",
            file=lambda: Path.home() / ".gemini" / "settings.json",
            url_key="httpUrl",
            check="the command /mcp",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            file=lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json",
            url_key="serverUrl",
            check="the MCP servers of Cascade",
        ),
        Client(name="mcp-json", file=lambda: Path.cwd() / "mcp.json"),
    )
}
"""Clients by the name for ``--client``."""

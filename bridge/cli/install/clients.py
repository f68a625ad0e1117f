"""MCP clients: their configuration files, and the logs that they write.

claude-desktop  macOS    ~/Library/Application Support/Claude/claude_desktop_config.json
                Windows  %APPDATA%/Claude/claude_desktop_config.json
                Linux    $XDG_CONFIG_HOME/Claude/claude_desktop_config.json
claude-code     .mcp.json of the project
cursor          ~/.cursor/mcp.json
vscode          .vscode/mcp.json of the project
gemini-cli      ~/.gemini/settings.json
windsurf        ~/.codeium/windsurf/mcp_config.json
codex           $CODEX_HOME/config.toml, by default in ~/.codex
goose           Linux, macOS  $XDG_CONFIG_HOME/goose/config.yaml
                Windows       %APPDATA%/Block/goose/config/config.yaml
zed             Linux, macOS  $XDG_CONFIG_HOME/zed/settings.json
                Windows       %APPDATA%/Zed/settings.json
lm-studio       ~/.lmstudio/mcp.json
continue        .continue/mcpServers/mcp.json of the project
junie           .junie/mcp/mcp.json of the project
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

    from bridge.cli.targets.client_entries import Entry

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
    url_remedy: str = ""
    """Hint for URLs, if it takes none."""
    url_key: str = "url"
    """Key of the URL of a server over streamable HTTP, whose entry has no ``type`` under another key."""
    log: Callable[[str], Path] | None = None
    """Path of the log of a server, by its name; None if the client shows logs in its own window alone."""
    check: str = ""
    """The part of the client that shows its servers and their state."""
    convert: Callable[[str, Entry], Entry] | None = None
    """Returns an entry, given its name, with the keys of a client that has others; None for those of ``mcp.json``."""
    lower_names: bool = False
    """True if names of servers are in lower case."""
    names: str | None = None
    """Regular expression of the names that it accepts; None for any."""

    @property
    def suffix(self) -> str:
        """Suffix of the configuration file, which names its format."""
        return self.file().suffix

    def adapted(self, entry: Entry, name: str) -> Entry:
        """Adapt the entry of a server with a name to this client.

        Raises:
            TargetError: The client does not support the entry.
        """
        if self.convert is not None:
            return self.convert(name, entry)
        if "url" in entry:
            if not self.takes_urls:
                raise TargetError(f"the configuration of {self.title} supports no URLs{self.url_remedy}")
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
        directory = _app_data()
    else:
        directory = _config_home()
    return directory / "Claude"


def _claude_log(server: str) -> Path:
    logs = Path.home() / "Library" / "Logs" / "Claude" if sys.platform == "darwin" else _claude_folder() / "logs"
    return logs / f"mcp-server-{Path(server).name}.log"


def _config_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _app_data() -> Path:
    return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")


def _codex_home() -> Path:
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


def _goose_file() -> Path:
    if sys.platform == "win32":
        return _app_data() / "Block" / "goose" / "config" / "config.yaml"
    return _config_home() / "goose" / "config.yaml"


def _zed_file() -> Path:
    folder = _app_data() / "Zed" if sys.platform == "win32" else _config_home() / "zed"
    return folder / "settings.json"


_GOOSE_SECONDS = 300
"""Timeout of a call in entries that Goose writes."""
_REFUSED_BY_GOOSE = frozenset(
    {"PATH", "PATHEXT", "PYTHONPATH", "PYTHONHOME", "NODE_OPTIONS", "CLASSPATH", "TEMP", "TMP"}
)
_PREFIXES_REFUSED_BY_GOOSE = ("LD_", "DYLD_")
"""Variables that Goose does not set for servers, since they change which programs run."""


def _for_goose(name: str, entry: Entry) -> Entry:
    described = {"enabled": True, "name": name, "description": "", "timeout": _GOOSE_SECONDS}
    if "url" in entry:
        return {"type": "streamable_http", **described, "uri": entry["url"]}
    variables = entry.get("env", {})
    for variable in variables:
        if variable in _REFUSED_BY_GOOSE or variable.startswith(_PREFIXES_REFUSED_BY_GOOSE):
            remedy = "; name a file as the target, such as tools.py" if variable == "PYTHONPATH" else ""
            raise TargetError(f"Goose does not set the variable {variable} for servers{remedy}")
    return {"type": "stdio", **described, "cmd": entry["command"], "args": entry["args"], "envs": variables}


def _without_type(_: str, entry: Entry) -> Entry:
    return {key: value for key, value in entry.items() if key != "type"}


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            file=lambda: _claude_folder() / "claude_desktop_config.json",
            takes_urls=False,
            url_remedy=": add it as a connector in its settings",
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
        Client(
            name="codex",
            title="Codex",
            file=lambda: _codex_home() / "config.toml",
            section="mcp_servers",
            names=r"[A-Za-z0-9_-]+",
            convert=_without_type,
            check="the command /mcp",
        ),
        Client(
            name="goose",
            title="Goose",
            file=_goose_file,
            section="extensions",
            convert=_for_goose,
            lower_names=True,
            check="its Extensions, or goose configure",
        ),
        Client(
            name="zed",
            title="Zed",
            file=_zed_file,
            section="context_servers",
            convert=_without_type,
            check="Settings, AI, MCP Servers",
        ),
        Client(
            name="lm-studio",
            title="LM Studio",
            file=lambda: Path.home() / ".lmstudio" / "mcp.json",
            check="the tab Program, Edit mcp.json",
        ),
        Client(
            name="continue",
            title="Continue",
            file=lambda: Path.cwd() / ".continue" / "mcpServers" / "mcp.json",
            check="Tools, MCP Servers",
        ),
        Client(
            name="junie",
            title="Junie",
            file=lambda: Path.cwd() / ".junie" / "mcp" / "mcp.json",
            takes_urls=False,
            url_remedy=": add it in its MCP Settings",
            check="Settings, Tools, Junie, MCP Settings",
        ),
        Client(name="mcp-json", file=lambda: Path.cwd() / "mcp.json"),
    )
}
"""Clients by the name for ``--client``."""

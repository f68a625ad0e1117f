"""``bridge add``: add a server of a registry to a configuration."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from bridge.cli.install import write_entry
from bridge.cli.install.config_files import only_writer
from bridge.cli.options import registry_option
from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.terminal import write_json
from bridge.errors import WireError
from bridge.hosting.process import print_message

_SECTION = "mcpServers"
_REFERENCE = re.compile(r"(?<!\$)\$\{(\w+)\}")


@click.command(short_help="Add a server of a registry to mcp.json.")
@click.argument("name")
@registry_option
@click.option("--version", default="latest", show_default=True, help="Version of the server.")
@click.option("--as", "short_name", help="Name in the configuration; by default the end of NAME.")
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), default=Path("mcp.json"), help="The configuration."
)
@click.option("--dry-run", is_flag=True, help="Show the entry, and write nothing.")
@click.option("--yes", is_flag=True, help="Write the entry without asking.")
@logging_option("warning")
def command(
    name: str, registry: str, version: str, short_name: str | None, config: Path, dry_run: bool, yes: bool
) -> None:
    """Add the server with this NAME, such as io.github.ada/weather, to mcp.json.

    Packages are pinned to their exact version. Keys and other values that you have to give are written as ${VAR}, and
    are read from the environment. Nothing is installed or started.
    """
    from bridge.client.config.server_json import entry_of  # noqa: PLC0415 - after usage errors
    from bridge.client.registry import Registry  # noqa: PLC0415 - likewise

    try:
        found = Registry(registry).server(name, version)
        if found is None or found.status == "deleted":
            raise CommandError(f"{registry} has no server {name!r} of version {version!r}; bridge search finds servers")
        own_name, entry = entry_of(found.document)
    except WireError as error:
        raise CommandError(str(error)) from error
    short_name = short_name or own_name
    if found.status != "active":
        print_message(f"{name!r} is {found.status}", "warning")
    write_json({_SECTION: {short_name: entry}})
    path = config.absolute()
    if dry_run:
        print_message(f"this entry would be written to {path}")
    elif not yes and sys.stdin.isatty() and not click.confirm(f"Write this entry to {path}?", err=True, default=True):
        print_message("nothing was written")
    else:
        with only_writer(path):
            write_entry(path, _SECTION, short_name, entry)
    texts = [str(entry.get("url", "")), *entry.get("args", []), *entry.get("env", {}).values()]
    texts += entry.get("headers", {}).values()
    if variables := sorted({each for text in texts for each in _REFERENCE.findall(text)}):
        print_message(f"set {', '.join(variables)} in the environment before you use it")

"""``bridge install``: add a target to the configuration of an MCP client.

`CLIENTS` has the clients and their files.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.completion import complete_targets
from bridge.cli.install.clients import CLIENTS
from bridge.cli.install.config_files import editor_of, lost_comments, only_writer, set_entry
from bridge.cli.reporting import logging_option
from bridge.cli.targets.client_entries import client_entry
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import ConfigTarget, LocalTarget, TargetCommand, only_target, with_profile
from bridge.cli.terminal import write_data, write_json
from bridge.hosting.process import print_message, redirect_stdout
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.cli.targets.client_entries import Entry
    from bridge.cli.targets.target import Target

_MAX_COMMENTS = 5
"""Comments that are shown."""


@click.command(cls=TargetCommand, short_help="Add a TARGET to the configuration of a client.")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option(
    "--client",
    "client_name",
    type=click.Choice(list(CLIENTS)),
    required=True,
    metavar="CLIENT",
    help=f"Client whose configuration is written: {', '.join(CLIENTS)}.",
)
@click.option("--name", help="Name of the server in the configuration; by default derived from the target.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    help="A variable of the server's environment. Repeatable.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write instead of the client's usual one.",
)
@click.option("--profile", help="Profile of a configuration, or of a gateway at a URL, which is all that is installed.")
@click.option("--dry-run", is_flag=True, help="Show the entry without writing it.")
@click.option("--yes", is_flag=True, help="Do not ask before writing.")
@openapi_options
@logging_option("warning")
@click.pass_context
def command(
    ctx: click.Context,
    target: str | None,
    client_name: str,
    name: str | None,
    variables: tuple[str, ...],
    config: Path | None,
    profile: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Add a TARGET to the configuration of a client, which then starts it.

    Shows the entry, and on a terminal asks before writing it. The rest of the file is unchanged, and a copy of the file
    is kept with the suffix .bak.
    """
    given, client = only_target(ctx, target), CLIENTS[client_name]
    chosen, selected = with_profile(given, profile)
    environment = _environment(variables)
    _check(chosen, selected, environment)
    options = () if selected is None else ("--profile", selected)
    name = name or profile or re.sub(r"[^A-Za-z0-9_-]+", "-", chosen.name).strip("-") or "server"
    name = name.lower() if client.lower_names else name
    if client.names is not None and not re.fullmatch(client.names, name):
        raise click.UsageError(
            f"{client.title} takes no server named {name!r}: give --name letters, digits, '_' and '-'"
        )
    entry = client.adapted(_with_environment(client_entry(chosen, options), environment), name)
    path = (config or client.file()).absolute()
    if client.suffix == ".json":
        write_json({client.section: {name: entry}})
    else:
        text = editor_of(client.suffix).with_member("", client.section, name, entry, str(path))
        write_data(text.rstrip("\n"))
    if lost := lost_comments(path, client.section, name, entry, client.suffix):
        shown = ", ".join(map(repr, lost[:_MAX_COMMENTS])) + (", …" if lost[_MAX_COMMENTS:] else "")
        print_message(f"{with_count(len(lost), 'comment')} inside the values that change will go: {shown}", "warning")
    if dry_run:
        print_message(f"this entry would be written to {path}")
    elif not yes and sys.stdin.isatty() and not click.confirm(f"Write this entry to {path}?", err=True, default=True):
        print_message("nothing was written")
    else:
        with only_writer(path):
            is_new = write_entry(path, client.section, name, entry, client.suffix)
        if is_new and client.title is not None:
            check = f"--client {client.name}" if config is None else shlex.quote(str(config))
            print_message(f"restart {client.title} to use it; bridge doctor {check} checks it")


def _check(target: Target, profile: str | None, variables: Mapping[str, str]) -> None:
    """Check that a target has tools and can be read before a client starts it, with these variables."""
    if isinstance(target, LocalTarget):
        from bridge.cli.targets.loading import load_features  # noqa: PLC0415 - not needed for other targets

        with redirect_stdout():
            load_features([target])
    elif isinstance(target, ConfigTarget):
        from bridge.cli.targets.servers import servers_of  # noqa: PLC0415 - likewise

        servers_of(target, is_alone=False, profile=profile, environ={**os.environ, **variables})


def _environment(variables: tuple[str, ...]) -> dict[str, str]:
    """Read variables in the form NAME=VALUE."""
    pairs = [variable.partition("=") for variable in variables]
    for variable, (key, equals, _) in zip(variables, pairs, strict=True):
        if not key or not equals:
            raise click.UsageError(f"--env {variable!r} does not have the form NAME=VALUE")
    return {key: value for key, _, value in pairs}


def _with_environment(entry: Entry, variables: Mapping[str, str]) -> Entry:
    if not variables:
        return entry
    if "url" in entry:
        raise click.UsageError("--env needs a server that the client starts, not a URL")
    return entry | {"env": {**entry.get("env", {}), **variables}}


def write_entry(path: Path, section: str | None, name: str, entry: Entry, suffix: str = ".json") -> bool:
    """Set a server's entry in a configuration; return False if it has the entry already.

    Settings that the user gave a present entry, such as timeouts, are kept. The ``suffix`` names its format, as for
    `bridge.cli.install.config_files.set_entry`.

    Raises:
        CommandError: The file cannot be written; it is unchanged.
    """
    is_written, backup = set_entry(path, section, name, entry, suffix, keeps_settings=True)
    if not is_written:
        print_message(f"{path} has this entry already; nothing was written")
        return False
    print_message(f"wrote {name!r} to {path}" + (f"; the previous content is in {backup}" if backup else ""))
    return True

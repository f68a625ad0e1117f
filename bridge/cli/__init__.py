"""The command ``bridge``.

One module a command, loaded when that command is used. Standard output carries data only, and diagnostics go to
standard error. A command ends with one of these codes:

    0    done; a server that was asked to end by SIGTERM is done
    1    the tool or the server failed: an error result, a dead server, a file that raised while it was imported
    2    wrong usage: an unknown option, a target that does not exist or has no tools, an unknown tool, bad arguments
    130  interrupted (Ctrl-C)
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from bridge.cli.reporting import exit_code_of

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("serve", "list", "call", "chat", "status", "login", "logout", "pin", "install")
"""Commands in the order of the help; each is ``command`` of the module of its name."""


class _Commands(click.Group):
    """Group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*COMMANDS]  # `list` is a command here, once it has been imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"bridge.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest similar commands without importing them."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None


def _show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, rarely needed

        click.echo(f"bridge {version('mcp-toolbridge')}")
        ctx.exit()


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A TARGET is whatever has tools: file.py[:object], directory/, package.module[:object], mcp.json[#server], "
    "an http(s):// URL of an MCP server, or, after all options, -- command args… for one that speaks over stdio.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and end.",
)
def _bridge() -> None:
    """Python functions as tools, served and called over the Model Context Protocol."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands after ``bridge``; that of this process by default.

    Returns:
        The exit code.
    """
    _open_what_is_closed()
    return exit_code_of(lambda: _bridge.main(arguments, prog_name="bridge", standalone_mode=False))


def _open_what_is_closed() -> None:
    """Redirect closed standard streams to the null device, so that no other file gets their descriptors."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))

"""The command ``bridge``.

Each command is a module, imported when it is used. Standard output has data only; diagnostics go to standard error.
Exit codes:

    0    success; also a server that ended after SIGTERM
    1    the tool or the server failed: an error result, a server that has ended, a file that raised on import
    2    wrong usage: an unknown option, a target that does not exist or has no tools, an unknown tool, bad arguments
    130  interrupted (Ctrl-C)
    143  ended by SIGTERM, and 129 by SIGHUP; a server ends with 0
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from bridge.cli.completion import install_option
from bridge.cli.help import HelpContext
from bridge.cli.reporting import exit_code_of
from bridge.hosting.process import drop_unwritable_diagnostics

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    *("new", "serve", "list", "call", "task", "read", "prompt", "inspect", "chat", "worker", "doctor", "status", "top"),
    *("login", "logout", "credentials", "pin", "install", "bundle", "search", "add", "publish"),
)
"""Commands in the order of the help; each is ``command`` of the module of its name."""


class _Commands(click.Group):
    """Group whose commands are imported on first use."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*COMMANDS]  # `list` is a command here, once it has been imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"bridge.cli.{cmd_name}").command
        command.context_class = HelpContext
        if not gc.isenabled():  # in `bridge.__main__`, until here
            gc.freeze()
            gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest similar commands without importing them."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A TARGET has tools: file.py[:object], directory/, package.module[:object], mcp.json[#server], server.mcpb, "
    "the http(s):// URL of an MCP server, or, after all options, -- command args… for an MCP server over stdio.",
)
@install_option
@click.version_option(package_name="mcp-toolbridge", prog_name="bridge", message="%(prog)s %(version)s")
def _bridge() -> None:
    """Serve Python functions as MCP tools, and call tools of MCP servers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of this process; return the exit code."""
    _open_closed_streams()
    drop_unwritable_diagnostics()
    return exit_code_of(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> object:
    # The shell cannot pass it, and no file's name can have it; whoever calls `main` can.
    if any("\0" in each for each in arguments or ()):
        raise click.UsageError("an argument contains the character NUL, which no file's name can have")
    return _bridge.main(arguments, prog_name="bridge", standalone_mode=False)


def _open_closed_streams() -> None:
    """Redirect closed standard streams to the null device, so that no other file gets their descriptors."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))

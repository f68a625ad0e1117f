"""``bridge serve``: serve tools as an MCP server, over stdio or HTTP."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.completion import complete_targets
from bridge.cli.help import GroupedHelp
from bridge.cli.options import group_values, options_of
from bridge.cli.reporting import configure_logging, log_level_option
from bridge.cli.serve.options import ServeOptions
from bridge.cli.targets.openapi import openapi_options
from bridge.cli.targets.target import TargetCommand
from bridge.hosting.process import redirect_stdout

_EXAMPLES = (
    ("bridge serve tools.py", "over stdio, for a client that starts this command"),
    ("bridge serve tools.py --transport http", "at http://127.0.0.1:8000/mcp, and over SSE"),
    ("bridge serve mcp.json --transport http", "a gateway to the servers of mcp.json"),
    ("bridge serve tools.py --transport http --host 0.0.0.0 --api-keys keys", "for other machines, with keys"),
)


class _ServeCommand(GroupedHelp, TargetCommand):
    """Command with targets and many options."""


@click.command(
    cls=_ServeCommand,
    examples=_EXAMPLES,
    short_help="Serve the tools of TARGETs over stdio or HTTP.",
)
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=complete_targets)
@options_of(ServeOptions)
@openapi_options
@log_level_option("info")
@click.pass_context
def command(ctx: click.Context, /, targets: tuple[str, ...], **settings: Any) -> None:
    """Serve the tools of one or several TARGETs as one MCP server.

    A TARGET is file.py[:object], directory/ or package.module[:object]; an OpenAPI document, of which --operations
    names the operations to serve; or servers whose tools are served again: mcp.json[#server], a URL, or
    -- command args… With several servers, every tool name is prefixed with its server's
    name (see --prefix), and only the tools of an unavailable server are missing.

    Output of tools goes to standard error. Over HTTP, Host and Origin are checked; localhost and the host to listen on
    are always allowed. Every option can be set in the environment, --max-calls by BRIDGE_MAX_CALLS; lists are
    separated by commas.
    """
    options = group_values(ServeOptions, settings)
    configure_logging(options.log_level, options.telemetry.log_format, options.telemetry.redact)
    if options.transport == "stdio":
        from bridge.cli.serve.stdio import serve_stdio  # noqa: PLC0415 - not needed for HTTP

        serve_stdio(ctx, targets, options)
    else:
        with redirect_stdout():
            from bridge.cli.serve.http import serve_http  # noqa: PLC0415 - not needed for stdio

            serve_http(ctx, targets, options)

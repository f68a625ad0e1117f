"""``bridge serve``: serve tools as an MCP server, over stdio or HTTP."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.options import (
    WholeNumber,
    count_option,
    group_values,
    option,
    pins_options,
    prefix_option,
    texts_option,
)
from bridge.cli.reporting import configure_logging, log_level_option
from bridge.cli.serve.auth_options import AuthOptions, auth_options
from bridge.cli.serve.deployment_options import OperationsOptions, ScalingOptions, operations_options, scaling_options
from bridge.cli.serve.limits_options import LimitsOptions, limits_options
from bridge.cli.serve.options import ServeOptions
from bridge.cli.serve.telemetry_options import TelemetryOptions, telemetry_options
from bridge.cli.targets import TargetCommand
from bridge.hosting.process import redirect_stdout

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Default maximum bytes of a request body."""


class _Transport(click.Choice[str]):
    """Transport name; other known names get a hint."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert a transport name."""
        if str(value).lower().replace("-", "").replace("_", "").startswith("streamable"):
            self.fail(f"{value!r} is not a transport; write --transport http", param, ctx)
        return super().convert(value, param, ctx)


@click.command(cls=TargetCommand, short_help="Serve the tools of TARGETs over stdio or HTTP.")
@click.argument("targets", nargs=-1, metavar="TARGET...")
@option(
    "--transport",
    type=_Transport(["stdio", "http", "sse"]),
    default="stdio",
    help="stdio for a client that starts this command; http for streamable HTTP and SSE; sse for SSE alone.",
)
@option("--host", default="127.0.0.1", help="Host to listen on.")
@option(
    "--port",
    type=WholeNumber(0, 65535),
    metavar="PORT",
    default=8000,
    help="Port to listen on; 0 for a free one, which is printed.",
)
@option("--path", default="/mcp", help="Path of streamable HTTP.")
@texts_option(
    "--allowed-hosts",
    help="Further Host headers to accept. Repeatable.",
)
@texts_option(
    "--allowed-origins",
    help="Further origins whose pages may use the server (CORS). Repeatable.",
)
@option("--no-sse", is_flag=True, help="With --transport http: do not serve SSE.")
@option(
    "--no-auth",
    is_flag=True,
    help="Allow calls without a credential; required if other machines can reach the port and there are no keys.",
)
@count_option(
    "--page-size",
    "TOOLS",
    "Maximum tools on a page of the list; by default all are on one page.",
)
@count_option(
    "--max-request-bytes",
    "BYTES",
    "Maximum length of a request's body.",
    default=DEFAULT_MAX_REQUEST_BYTES,
)
@option("--no-fast-path", is_flag=True, help="Answer every request by the SDK.")
@option(
    "--reload",
    is_flag=True,
    help="Apply changes of files: configurations are reloaded; over HTTP, Python files near a target are reloaded.",
)
@texts_option(
    "--forward-headers",
    help="Headers of a caller to forward to servers with URLs, except credentials. Repeatable.",
)
@auth_options
@limits_options
@operations_options
@scaling_options
@telemetry_options
@pins_options
@prefix_option
@option("--name", help="Name of the server; by default derived from its targets.")
@option(
    "--server-version",
    metavar="VERSION",
    help="Version of the server; by default the __version__ of its only target.",
)
@option("--instructions", help="Instructions about the server for the model.")
@texts_option(
    "--default-targets",
    metavar="TARGET[,TARGET…]",
    help="Files and directories to serve if no TARGET is given; missing ones are skipped. Repeatable.",
)
@log_level_option("info")
@click.pass_context
def command(ctx: click.Context, /, targets: tuple[str, ...], **settings: Any) -> None:
    """Serve the tools of one or several TARGETs as one MCP server.

    A TARGET is file.py[:object], directory/ or package.module[:object], or servers whose tools are served again:
    mcp.json[#server], a URL, or -- command args… With several servers, every tool name is prefixed with its server's
    name (see --prefix), and only the tools of an unavailable server are missing.

    Output of tools goes to standard error. Over HTTP, Host and Origin are checked; localhost and the host to listen on
    are always allowed. Every option can be set in the environment; lists are separated by commas.
    """
    auth = group_values(AuthOptions, settings)
    limits = group_values(LimitsOptions, settings)
    operations = group_values(OperationsOptions, settings)
    scaling = group_values(ScalingOptions, settings)
    telemetry = group_values(TelemetryOptions, settings)
    options = ServeOptions(
        auth=auth, limits=limits, operations=operations, scaling=scaling, telemetry=telemetry, **settings
    )
    configure_logging(options.log_level, telemetry.log_format)
    if options.transport == "stdio":
        from bridge.cli.serve.stdio import serve_stdio  # noqa: PLC0415 - not needed for HTTP

        serve_stdio(ctx, targets, options)
    else:
        with redirect_stdout():
            from bridge.cli.serve.http import serve_http  # noqa: PLC0415 - not needed for stdio

            serve_http(ctx, targets, options)

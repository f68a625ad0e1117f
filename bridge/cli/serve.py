"""``bridge serve``: tools as an MCP server, over stdio or HTTP."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bridge.cli.entries import configuration, shown_entry, url_entry
from bridge.cli.failures import say
from bridge.cli.loading import load_toolbox
from bridge.cli.logs import configure_logging, log_level_option
from bridge.cli.numbers import WholeNumber
from bridge.cli.options import option, texts_option
from bridge.cli.output import stdout_diverted
from bridge.cli.pins import pins_options
from bridge.cli.serving import Serving
from bridge.cli.targets import ConfigTarget, TargetCommand, command_target, parse_target, split_targets

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from bridge.cli.targets import Target
    from bridge.client.pinning import PinMode
    from bridge.tools.toolbox import ToolBox

DEFAULT_MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""How long the body of a request may be unless ``--max-request-bytes`` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What ``bridge serve`` was asked to do."""

    transport: str
    host: str
    port: int
    path: str
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    no_sse: bool
    no_auth: bool
    page_size: int | None
    max_request_bytes: int
    no_fast_path: bool
    reload: bool
    name: str | None
    forward_headers: tuple[str, ...]
    pins: Path | None
    pin_mode: PinMode
    log_level: str


@click.command(cls=TargetCommand, short_help="Serve the tools of TARGETs over stdio or HTTP.")
@click.argument("targets", nargs=-1, metavar="TARGET...")
@option(
    "--transport",
    type=click.Choice(["stdio", "http", "sse"]),
    default="stdio",
    show_default=True,
    help="stdio for a host that starts this command; http for streamable HTTP, with SSE beside it; sse for SSE alone.",
)
@option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@option(
    "--port",
    type=WholeNumber(0, 65535),
    default=8000,
    show_default=True,
    help="The port; 0 for a free one, which is printed.",
)
@option("--path", default="/mcp", show_default=True, help="The path of streamable HTTP.")
@texts_option(
    "--allowed-hosts",
    help="Further Host headers to accept; repeatable.",
)
@texts_option(
    "--allowed-origins",
    help="Further Origin headers to accept; repeatable.",
)
@option("--no-sse", is_flag=True, help="With --transport http: streamable HTTP alone.")
@option(
    "--no-auth",
    is_flag=True,
    help="Let anyone who reaches the port call the tools; asked for where that is not only this machine.",
)
@option("--page-size", type=WholeNumber(1), help="Tools in a page of the list; all in one page by default.")
@option(
    "--max-request-bytes",
    type=WholeNumber(1),
    default=DEFAULT_MAX_REQUEST_BYTES,
    show_default=True,
    help="The longest body of a request.",
)
@option("--no-fast-path", is_flag=True, help="Let the SDK answer every request, plain ones too.")
@option(
    "--reload",
    is_flag=True,
    help="Follow changes: configurations are read again; over HTTP, Python files beside a target are loaded again.",
)
@texts_option(
    "--forward-headers",
    help="Headers of a caller to hand on to servers behind URLs; none that is a credential. Repeatable.",
)
@pins_options
@option("--name", help="What the server calls itself; by default after its targets.")
@log_level_option("info")
@click.pass_context
def command(ctx: click.Context, /, targets: tuple[str, ...], **settings: Any) -> None:
    """Serve the tools of one or several TARGETs as one MCP server.

    A TARGET is file.py[:object] or package.module[:object], or servers whose tools are served again: mcp.json[#server],
    a URL, or -- command args… Of those, a tool whose name is taken has its server's name before it, and a server that
    is not there costs only its own tools.

    What tools print goes to standard error. Over HTTP, Host and Origin are checked; localhost and the host
    that is listened on are always allowed. Every option can be given in the environment; lists are separated by commas.
    """
    options = ServeOptions(**settings)
    configure_logging(options.log_level)
    if options.transport == "stdio":
        _serve_stdio(ctx, targets, options)
    else:
        with stdout_diverted():
            _serve_http(ctx, targets, options)


def _targets(ctx: click.Context, texts: tuple[str, ...]) -> list[Target]:
    after_dashes = command_target(ctx)
    targets: list[Target] = [*map(parse_target, texts), *([after_dashes] if after_dashes else [])]
    if not targets:
        raise click.UsageError("a TARGET is missing, such as tools.py", ctx)
    return targets


def _serving(targets: list[Target], options: ServeOptions) -> Serving:
    """What is served: tools of this process, or a gateway."""
    local, remote = split_targets(targets)
    if remote:
        from bridge.cli.gateway import serving_again  # noqa: PLC0415 - the SDK takes most of a second to import

        return serving_again(
            local,
            remote,
            forward_headers=options.forward_headers,
            pins=options.pins,
            pin_mode=options.pin_mode,
            reload=options.reload,
        )
    return Serving(load_toolbox(local))


def _name_of(targets: list[Target], options: ServeOptions) -> str:
    return options.name or "-".join(dict.fromkeys(target.name for target in targets))


def _serve_stdio(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> None:
    from bridge.server.diversion import divert_stdout  # noqa: PLC0415 - HTTP does without it

    streams = divert_stdout()  # before any code of the user's can print
    targets = _targets(ctx, texts)
    _note_ignored(ctx, targets)
    serving, name = _serving(targets, options), _name_of(targets, options)
    said = [f"--name={options.name}"] if options.name else []
    said += [f"--page-size={options.page_size}"] if options.page_size else []
    say(f"serving {name} over stdio; for a host's configuration:")
    say(configuration(name, shown_entry(targets, said)))
    from bridge.server.publisher import Publisher  # noqa: PLC0415 - after the targets, whose mistakes come first
    from bridge.server.stdio import serve_stdio  # noqa: PLC0415 - as above

    publisher = Publisher(serving.tools, name=name, page_size=options.page_size)
    serve_stdio(
        publisher,
        streams,
        max_line_bytes=options.max_request_bytes,
        fast_path=not options.no_fast_path,
        lifespan=serving.lifespan or nullcontext,
        last_act=serving.last_act,
    )


_HTTP_ONLY = {
    "host", "port", "path", "allowed_hosts", "allowed_origins", "no_sse", "no_auth",
}  # fmt: skip


def _note_ignored(ctx: click.Context, targets: list[Target]) -> None:
    """Say which options on the command line do nothing; those in the environment may be meant for another server."""
    ignored = [
        "--" + name.replace("_", "-")
        for name in ctx.params
        if (name in _HTTP_ONLY or (name == "reload" and not any(isinstance(each, ConfigTarget) for each in targets)))
        and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if ignored:
        say(f"bridge serve: over stdio nothing is done with {', '.join(ignored)}; add --transport http")


def _serve_http(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> None:
    from bridge.cli import listening, reloading  # noqa: PLC0415 - stdio does without them

    if options.transport == "sse" and options.no_sse:
        raise click.UsageError("--no-sse leaves nothing of --transport sse", ctx)
    if not options.path.startswith("/"):
        raise click.UsageError(f"--path must begin with a slash, not {options.path!r}", ctx)
    addresses = listening.resolve(options.host, options.port)
    if not options.no_auth and not listening.are_loopback(addresses):
        raise click.UsageError(
            f"--host {options.host} can be reached from other machines, and nobody is asked for a key: "
            "add --no-auth if that is meant, or listen on 127.0.0.1",
            ctx,
        )
    targets = _targets(ctx, texts)
    name = _name_of(targets, options)
    local, _ = split_targets(targets)
    if options.reload and local and not reloading.is_child():
        reloading.serve_again_and_again(local, listening.bind(addresses))
        return
    serving = _serving(targets, options)
    sockets = reloading.inherited_sockets() or listening.bind(addresses)
    port = sockets[0].getsockname()[1]
    path, kind = ("/sse", "sse") if options.transport == "sse" else (options.path, "http")

    def announce() -> None:
        say(f"serving {name} at {listening.url_of(options.host, port, path)}")
        say(configuration(name, url_entry(listening.url_of(listening.reachable(options.host), port, path), kind)))

    app = _app(ctx, serving.tools, name, options)
    listening.run(
        app,
        sockets,
        announce,
        is_debug=options.log_level == "debug",
        is_child=reloading.is_child(),
        lifespan=serving.lifespan,
    )


def _app(ctx: click.Context, tools: ToolBox, name: str, options: ServeOptions) -> Starlette:
    from bridge.server.http import http_app  # noqa: PLC0415 - stdio does without it

    try:
        return http_app(
            tools,
            name=name,
            path=options.path,
            sse=not options.no_sse,
            streamable=options.transport == "http",
            host=options.host,
            allowed_hosts=options.allowed_hosts,
            allowed_origins=options.allowed_origins,
            max_request_bytes=options.max_request_bytes,
            page_size=options.page_size,
            fast_path=not options.no_fast_path,
        )
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error

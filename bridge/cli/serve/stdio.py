"""``bridge serve`` over stdio."""

from __future__ import annotations

import shlex
import sys
from contextlib import asynccontextmanager, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bridge.cli.options import typed_options
from bridge.cli.serve.auth_options import AuthOptions
from bridge.cli.serve.check import report_check
from bridge.cli.serve.deployment_options import OperationsOptions, ScalingOptions
from bridge.cli.serve.options import name_of, server_of, serving_of, targets_of, warn_unused_options
from bridge.cli.serve.telemetry_options import telemetry_enabled
from bridge.cli.targets.client_entries import configuration, redacted, serving_entry
from bridge.cli.targets.target import CommandTarget, ConfigTarget, target_argument
from bridge.hosting.process import print_message, print_unserved_routes
from bridge.server.stdio.process import take_standard_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    import click

    from bridge.cli.serve.options import ServeOptions
    from bridge.cli.targets.target import Target


_HTTP_ONLY = {
    "host", "port", "path", "allowed_hosts", "allowed_origins", "no_sse", "no_auth", "no_card",
    "forward_headers",
    *(each.name for group in (AuthOptions, OperationsOptions, ScalingOptions) for each in fields(group)),
}  # fmt: skip


def _note_ignored(ctx: click.Context, targets: list[Target]) -> None:
    """Warn of options on the command line without effect; those in the environment may be for another server."""
    follows = any(isinstance(each, ConfigTarget) for each in targets)
    ignored = [
        option.opts[0]
        for option in typed_options(ctx)
        if option.name in _HTTP_ONLY
        or (option.help or "").startswith("Over HTTP:")
        or (option.name == "reload" and not follows)
    ]
    if ignored:
        print_message(f"bridge serve: {', '.join(ignored)} has no effect over stdio; add --transport http", "warning")


def _reporting_blocks(
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """Return a lifespan during which functions that block the event loop are logged."""
    from bridge.hosting.blocked_loop import blocks_reported  # noqa: PLC0415 - only with debug messages

    @asynccontextmanager
    async def reporting() -> AsyncIterator[None]:
        async with (lifespan or nullcontext)(), blocks_reported():
            yield

    return reporting


def _explain_silence(targets: list[Target]) -> None:
    """Explain at a terminal why nothing happens, and name commands that try the server."""
    print_message("waiting for an MCP client on standard input; Ctrl-C ends the server. To try its tools, run instead:")
    shown = [target_argument(target) for target in map(redacted, targets) if not isinstance(target, CommandTarget)] or [
        "tools.py"
    ]
    print_message(f"  bridge inspect {shlex.join(shown)}")
    print_message(f"  bridge install {shlex.quote(shown[0])} --client claude-desktop")


def serve_stdio(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> None:
    """Serve over stdio."""
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    streams = take_standard_streams()  # before user code can print
    targets = targets_of(ctx, texts, options)
    _note_ignored(ctx, targets)
    warn_unused_options(ctx, targets, options)
    serving = serving_of(targets, options)
    name = name_of(targets, options, serving)
    arguments = [f"--name={options.name}"] if options.name else []
    arguments += [f"--instructions={options.instructions}"] if options.instructions else []
    arguments += [f"--page-size={options.page_size}"] if options.page_size else []
    arguments += [f"--profile={options.profile}"] if options.profile else []
    if options.check:
        report_check(ctx, serving, server_of(ctx, serving, name, options))
        return
    print_message(f"serving {name} over stdio; for a client's configuration:")
    print_message(configuration(name, serving_entry([*map(redacted, targets)], arguments)))
    if is_typed:
        _explain_silence(targets)
    from bridge.server.stdio.server import serve_stdio  # noqa: PLC0415 - after errors of the targets

    lifespan = serving.lifespan

    with telemetry_enabled(options.telemetry, name) as watched:
        server = server_of(ctx, serving, name, options)
        if options.profile is not None:
            server = server.with_profile(serving.profiles[0])
        print_unserved_routes(server)
        if server.accounts is not None:
            from bridge.server.unmatched_names import with_unmatched_warnings  # noqa: PLC0415 - only with limits

            lifespan = with_unmatched_warnings(server, lifespan)
        if options.log_level == "debug":
            lifespan = _reporting_blocks(lifespan)
        serve_stdio(
            server,
            streams,
            max_line_bytes=options.max_request_bytes,
            lifespan=lifespan or nullcontext,
            last_act=watched.closed_before(serving.last_act),
        )

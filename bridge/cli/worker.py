"""``bridge worker``: run tasks that wait on Redis, without serving."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.completion import complete_targets
from bridge.cli.options import group_values, options_of
from bridge.cli.reporting import configure_logging, log_level_option
from bridge.cli.serve.options import ServeOptions, name_of, server_of, serving_of, targets_of, warn_unused_options
from bridge.cli.serve.telemetry_options import set_draining_source, telemetry_enabled
from bridge.cli.targets.target import TargetCommand
from bridge.hosting import serve
from bridge.hosting.admin_pages import admin_pages
from bridge.hosting.http.limits import ConnectionLimits
from bridge.hosting.process import DrainTimes, print_message, redirect_stdout
from bridge.hosting.server import Service
from bridge.server.http.host_origin import AllowedHosts
from bridge.server.http.probes import HealthState

OPTIONS = frozenset(
    {
        *("redis_url", "name", "max_running_tasks", "max_tasks", "max_task_bytes", "concurrency", "tool_rate"),
        *("spill_chars", "spill_mode", "spill_drop_schemas", "spill_ttl", "spill_max_bytes", "spill_store"),
        *("tool_concurrency", "max_output_chars", "max_result_bytes", "tool_max_result_bytes", "max_calls"),
        *("admin_port", "admin_host", "drain_timeout", "metrics", "traces", "log_format", "log_arguments"),
        *("audit_log", "audit_log_max_bytes", "audit_log_kept_files", "forward_headers"),
        *("pins", "pin_mode", "prefix", "default_targets"),
    }
)
"""Settings of ``bridge serve`` that a worker has, too."""


@click.command(cls=TargetCommand, short_help="Run tasks of TARGETs that wait on Redis.")
@click.argument("targets", nargs=-1, metavar="TARGET...", shell_complete=complete_targets)
@options_of(ServeOptions, OPTIONS)
@log_level_option("info")
@click.pass_context
def command(ctx: click.Context, /, targets: tuple[str, ...], **settings: Any) -> None:
    """Run the tasks of one server, which processes of `bridge serve` with the same --redis-url and --name create.

    Give the same TARGETs and the same limits as to them. After SIGTERM, no further task is begun, and running ones get
    the time of --drain-timeout.
    """
    options = group_values(ServeOptions, settings | {"transport": "http", "no_auth": True})
    configure_logging(options.log_level, options.telemetry.log_format)
    redis_url = options.scaling.redis_url
    if redis_url is None:
        raise click.UsageError("--redis-url is missing: the URL of the Redis where tasks wait", ctx)
    if options.telemetry.metrics and options.operations.admin_port is None:
        raise click.UsageError("--metrics needs --admin-port, at which they are served", ctx)
    options.operations.check(ctx)
    options.scaling.check(ctx, transport="http")
    options.tasks.options(options.scaling)  # names the extra that is missing
    with redirect_stdout():
        chosen = targets_of(ctx, targets, options)
        warn_unused_options(ctx, chosen, options)
        serving = serving_of(chosen, options)
        name = name_of(chosen, options, serving)
        options.scaling.reach_redis()  # at start only; later outages are tolerated
        from bridge.server.http.app import http_app  # noqa: PLC0415 - after errors of the targets

        with telemetry_enabled(options.telemetry, name) as watched:
            server = server_of(ctx, serving, name, options)
            operations = HealthState(servers=serving.servers, is_held=True)
            set_draining_source(lambda: operations.is_draining)
            app = http_app(server, sse=False, redis_url=redis_url)  # serves no port
            service = Service(
                app=app,
                operations=operations,
                opened=lambda: print_message(f"running tasks of {name}"),
                times=DrainTimes(timeout_seconds=options.operations.drain_timeout),
                lifespan=serving.lifespan,
                last_act=watched.closed_before(serving.last_act),
            )
            if options.operations.admin_port is None:
                pages = serve.AdminPages(pages={})
            else:
                admin_host = options.operations.admin_host
                pages = admin_pages(
                    app,
                    operations,
                    path=options.path,
                    admin_host=admin_host,
                    admin_port=options.operations.admin_port,
                    hosts=AllowedHosts(admin_host),
                    is_open=False,
                    metrics=None if watched.metrics is None else watched.metrics.text,
                    auth=None,
                    sockets=[],
                )
            serve.serve_app(service, [], pages, ConnectionLimits(), is_debug=options.log_level == "debug")

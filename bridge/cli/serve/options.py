"""Options of ``bridge serve``, and the tools that it serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bridge.cli.loading import Serving, load_toolbox, version_of
from bridge.cli.options import typed_options
from bridge.cli.targets import existing_targets, given_targets, split_targets
from bridge.hosting.process import print_message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bridge.cli.serve.auth_options import AuthOptions
    from bridge.cli.serve.deployment_options import OperationsOptions, ScalingOptions
    from bridge.cli.serve.limits_options import LimitsOptions
    from bridge.cli.serve.telemetry_options import TelemetryOptions
    from bridge.cli.targets import Target
    from bridge.client.config.servers import Prefixing
    from bridge.client.tool_pins import PinMode
    from bridge.server.publisher import Publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """All options of ``bridge serve``."""

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
    server_version: str | None
    instructions: str | None
    forward_headers: tuple[str, ...]
    auth: AuthOptions
    limits: LimitsOptions
    operations: OperationsOptions
    scaling: ScalingOptions
    telemetry: TelemetryOptions
    pins: Path | None
    pin_mode: PinMode
    prefix: Prefixing | None
    default_targets: tuple[str, ...]
    log_level: str


def targets_of(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> list[Target]:
    """Targets of the command, including one after ``--``; by default the existing default targets."""
    if targets := given_targets(ctx, texts):
        return targets
    if defaults := existing_targets(options.default_targets):
        return defaults
    absent = f", and there is no {' and no '.join(options.default_targets)}" if options.default_targets else ""
    raise click.UsageError(f"a TARGET is missing, such as tools.py{absent}", ctx)


def warn_unused_options(ctx: click.Context, options: ServeOptions) -> None:
    """Warn of options on the command line that have no effect without another one."""
    telemetry = options.telemetry
    has_audit_log = telemetry.audit_log is not None
    needed = {
        "log_arguments": (has_audit_log or telemetry.log_format == "json", "--audit-log or --log-format json"),
        "audit_log_max_bytes": (has_audit_log, "--audit-log"),
        "audit_log_kept_files": (has_audit_log, "--audit-log"),
        "pin_mode": (options.pins is not None, "--pins"),
    }
    if options.transport != "stdio":
        needed["admin_host"] = (options.operations.admin_port is not None, "--admin-port")
    for option in typed_options(ctx):
        is_there, others = needed.get(option.name or "", (True, ""))
        if not is_there:
            print_message(f"bridge serve: {option.opts[0]} has no effect; add {others}", "warning")


def serving_of(targets: list[Target], options: ServeOptions) -> Serving:
    """Load the tools, or build a gateway for remote targets."""
    local, remote = split_targets(targets)
    if remote:
        from bridge.cli.serve.gateway import serve_gateway  # noqa: PLC0415 - importing the SDK takes most of a second

        return serve_gateway(
            local,
            remote,
            forward_headers=options.forward_headers,
            prefix=options.prefix,
            pins=options.pins,
            pin_mode=options.pin_mode,
            reload=options.reload,
        )
    return Serving(load_toolbox(local), version=version_of(local))


def name_of(targets: list[Target], options: ServeOptions) -> str:
    """Name of the server."""
    return options.name or "-".join(dict.fromkeys(target.name for target in targets))


def publisher_of(
    ctx: click.Context,
    serving: Serving,
    name: str,
    options: ServeOptions,
    state_keys: Sequence[bytes] | None = None,
) -> Publisher:
    """Build the publisher.

    Args:
        ctx: The command.
        serving: The tools.
        name: Name of the server.
        options: The command's options.
        state_keys: Keys that encrypt client-held state; None to generate one for this process.
    """
    from bridge.server.publisher import Publisher  # noqa: PLC0415 - after errors of the targets

    try:
        return Publisher(
            serving.tools,
            name=name,
            version=serving.version if options.server_version is None else options.server_version,
            instructions=options.instructions,
            page_size=options.page_size,
            policy=options.limits.policy(),
            state_keys=state_keys,
            limits=options.limits.limits(ctx),
            max_calls=None if options.transport == "stdio" else options.limits.max_calls,
        )
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from error

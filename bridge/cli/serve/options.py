"""Options of ``bridge serve``, and the tools that it serves."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import click

from bridge.cli.options import (
    UpstreamOptions,
    WholeNumber,
    check_pins,
    count_setting,
    group_setting,
    setting,
    texts_setting,
    typed_options,
    usage_errors,
)
from bridge.cli.serve.auth_options import AuthOptions
from bridge.cli.serve.credential_options import CredentialOptions
from bridge.cli.serve.deployment_options import OperationsOptions, ScalingOptions
from bridge.cli.serve.event_options import EventServeOptions
from bridge.cli.serve.limits_options import LimitsOptions
from bridge.cli.serve.spill_options import SpillOptions
from bridge.cli.serve.task_options import TaskServeOptions
from bridge.cli.serve.telemetry_options import TelemetryOptions
from bridge.cli.serve.tool_search_options import CodeOptions, ToolSearchOptions
from bridge.cli.targets.loading import load_features, server_in, version_of
from bridge.cli.targets.openapi import lifespan_of
from bridge.cli.targets.serving import Serving
from bridge.cli.targets.target import ConfigTarget, existing_targets, given_targets, split_targets
from bridge.errors import DefinitionError, TargetError
from bridge.hosting.process import print_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.targets.target import Target
    from bridge.server.options import ServerOptions
    from bridge.server.server import Server


START_SECONDS = 10.0
"""Default of ``--start-wait``, as in `bridge.gateway.gateway`, whose import takes most of a second."""


_HTTP, _SERVERS, _ITSELF = "HTTP", "Servers whose tools are served", "Description of the server"
"""Headings of groups of options."""


class _Transport(click.Choice[str]):
    """Transport name; other known names get a hint."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Convert a transport name."""
        if str(value).lower().replace("-", "").replace("_", "").startswith("streamable"):
            self.fail(f"{value!r} is not a transport; write --transport http", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """All options of ``bridge serve``."""

    transport: str = setting(
        type=_Transport(["stdio", "http", "sse"]),
        default="stdio",
        help="stdio for a client that starts this command; http for streamable HTTP and SSE; sse for SSE alone.",
    )
    host: str = setting(default="127.0.0.1", help="Host to listen on.")
    port: int = setting(
        type=WholeNumber(0, 65535),
        metavar="PORT",
        default=8000,
        help="Port to listen on; 0 for a free one, which is printed.",
    )
    path: str = setting(default="/mcp", help="Path of streamable HTTP.", heading=_HTTP)
    tags: tuple[str, ...] = texts_setting(
        help="Serve only tools, resources and prompts with one of these tags. Repeatable."
    )
    allowed_hosts: tuple[str, ...] = texts_setting(help="Further Host headers to accept. Repeatable.", heading=_HTTP)
    allowed_origins: tuple[str, ...] = texts_setting(
        help="Further origins whose pages may use the server (CORS). Repeatable.", heading=_HTTP
    )
    no_sse: bool = setting(is_flag=True, help="With --transport http: do not serve SSE.", heading=_HTTP)
    no_card: bool = setting(is_flag=True, help="Serve no card of the server, by which clients find it.", heading=_HTTP)
    no_auth: bool = setting(
        is_flag=True,
        help="Allow calls without a credential; required if other machines can reach the port and there are no keys.",
        heading=_HTTP,
    )
    page_size: int | None = count_setting(
        "TOOLS", "Maximum tools on a page of the list; by default all are on one page.", heading=_HTTP
    )
    max_request_bytes: int = count_setting(
        "BYTES", "Maximum length of a request's body.", default=4 * 1024 * 1024, heading=_HTTP
    )
    reload: bool = setting(
        is_flag=True,
        help="Apply changes of files: configurations are reloaded; over HTTP, Python files near a target are reloaded.",
    )
    check: bool = setting(
        is_flag=True,
        help="Check options, targets and configurations, start nothing, and exit: with 0 if they can be served.",
    )
    forward_headers: tuple[str, ...] = texts_setting(
        help="Headers of a caller to forward to servers with URLs, except credentials. Repeatable.", heading=_SERVERS
    )
    start_wait: float = setting(
        heading=_SERVERS,
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        default=START_SECONDS,
        help="Seconds that lists wait at the start for servers that are not required; slower ones are added later.",
    )
    max_starts: int | None = count_setting(
        "SERVERS",
        "Servers over stdio that start at the same time; by default as many as CPUs, 4 at least.",
        heading=_SERVERS,
    )
    auth: AuthOptions = group_setting(AuthOptions)
    limits: LimitsOptions = group_setting(LimitsOptions)
    spill: SpillOptions = group_setting(SpillOptions, "Large results")
    tasks: TaskServeOptions = group_setting(TaskServeOptions, "Tasks")
    events: EventServeOptions = group_setting(EventServeOptions, "Events")
    operations: OperationsOptions = group_setting(OperationsOptions, "Probes and shutdown")
    scaling: ScalingOptions = group_setting(ScalingOptions, "Processes and replicas")
    telemetry: TelemetryOptions = group_setting(TelemetryOptions, "Metrics and logs")
    tool_search: ToolSearchOptions = group_setting(ToolSearchOptions, "Tool search")
    upstream: UpstreamOptions = group_setting(UpstreamOptions, _SERVERS)
    credentials: CredentialOptions = group_setting(CredentialOptions, "Credentials of callers")
    profile: str | None = setting(
        help="Over stdio: the only profile of a configuration to serve; over HTTP, each has a URL of its own."
    )
    name: str | None = setting(help="Name of the server; by default derived from its targets.", heading=_ITSELF)
    server_version: str | None = setting(
        metavar="VERSION",
        help="Version of the server; by default the __version__ of its only target.",
        heading=_ITSELF,
    )
    instructions: str | None = setting(help="Instructions about the server for the model.", heading=_ITSELF)
    default_targets: tuple[str, ...] = texts_setting(
        metavar="TARGET[,TARGET…]",
        help="Files and directories to serve if no TARGET is given; missing ones are skipped. Repeatable.",
    )
    log_level: str


def targets_of(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> list[Target]:
    """Targets of the command, including one after ``--``; by default the existing default targets."""
    if targets := given_targets(ctx, texts):
        return targets
    if defaults := existing_targets(options.default_targets):
        return defaults
    absent = f", and there is no {' and no '.join(options.default_targets)}" if options.default_targets else ""
    raise click.UsageError(f"a TARGET is missing, such as tools.py{absent}", ctx)


def warn_unused_options(ctx: click.Context, targets: list[Target], options: ServeOptions) -> None:
    """Warn of options on the command line that have no effect without another one, or with these targets.

    Raises:
        click.UsageError: There is a lock file, and no server.
    """
    check_pins(ctx, targets)
    telemetry, listing = options.telemetry, options.tool_search.tools
    is_configured = listing is None and any(isinstance(each, ConfigTarget) for each in targets)
    has_servers = bool(split_targets(targets)[1])
    search = listing in {"search", "auto", "code"} or is_configured, "--tools search, auto or code"
    per_caller = has_servers, "a server whose callers have credentials of their own ('per': 'caller')"
    has_audit_log = telemetry.audit_log is not None
    needed = {
        "log_arguments": (has_audit_log or telemetry.are_calls_logged, "--audit-log or --log-calls always"),
        "audit_log_max_bytes": (has_audit_log, "--audit-log"),
        "audit_log_kept_files": (has_audit_log, "--audit-log"),
        "pin_mode": (options.upstream.pins is not None, "--pins"),
        "event_callback_origins": (options.events.event_webhooks, "--event-webhooks"),
        "team_claim": (bool(options.auth.oauth_issuer), "--oauth-issuer"),
        "team_scope": (bool(options.auth.oauth_issuer), "--oauth-issuer"),
        "limits_claim": (bool(options.auth.oauth_issuer), "--oauth-issuer"),
        "prefix": (has_servers, "a server, whose name is the prefix"),
        "always_list": search,
        "embeddings_model": search,
        "embeddings_url": (options.tool_search.embeddings_model is not None, "--embeddings-model"),
        "max_listed_tokens": (listing == "auto" or is_configured, "--tools auto"),
        **dict.fromkeys(
            (each.name for each in fields(CodeOptions)), (listing == "code" or is_configured, "--tools code")
        ),
        **dict.fromkeys((each.name for each in fields(CredentialOptions)), per_caller),
    }
    if options.transport != "stdio":
        introspection = options.auth.oauth_introspection_url is not None, "--oauth-introspection-url"
        needed |= dict.fromkeys(("oauth_client_id", "oauth_client_secret"), introspection)
        needed["event_webhooks"] = (
            options.auth.are_callers_known,
            "--api-keys or --oauth-issuer, since only authenticated callers may name callbacks",
        )
        needed["admin_host"] = (options.operations.admin_port is not None, "--admin-port")
        needed["path"] = (options.transport == "http", "--transport http, since SSE is served at /sse")
    for option in typed_options(ctx):
        is_there, others = needed.get(option.name or "", (True, ""))
        if not is_there:
            print_message(f"bridge serve: {option.opts[0]} has no effect; add {others}", "warning")


def serving_of(targets: list[Target], options: ServeOptions, state_keys: Sequence[bytes] | None = None) -> Serving:
    """Load the tools, or build a gateway for remote targets."""
    local, remote = split_targets(targets)
    if remote:
        from bridge.cli.serve.gateway import serve_gateway  # noqa: PLC0415 - importing the SDK takes most of a second

        gateway = serve_gateway(
            local,
            remote,
            options.upstream,
            forward_headers=options.forward_headers,
            reload=options.reload,
            start_seconds=options.start_wait,
            max_starts=options.max_starts,
            broker=lambda: options.credentials.broker(
                name_of(targets, options),
                state_keys,
                options.scaling.redis_url,
                default_url=_origin_of(options.auth.resource_url, options.path),
            ),
            sign_in_client=options.credentials.sign_in_client,
            profile=options.profile if options.transport == "stdio" else None,
        )
        return _selected(gateway, options)
    if options.profile is not None and options.transport == "stdio":
        raise TargetError(f"there is no profile {options.profile!r}: profiles are those of a configuration")
    features = load_features(local)
    return _selected(
        Serving(features, lifespan_of(features), version=version_of(local), server=server_in(local)), options
    )


def _origin_of(resource_url: str | None, path: str) -> str | None:
    """Return the URL of a server without the path of its endpoint; None if it is not known."""
    return None if resource_url is None else resource_url.rstrip("/").removesuffix(path.rstrip("/"))


def _selected(serving: Serving, options: ServeOptions) -> Serving:
    """Return what is served with the tools of the chosen tags."""
    if not options.tags:
        return serving
    from bridge.tools.transform import filtered  # noqa: PLC0415 - after errors of the targets

    return replace(serving, features=filtered(serving.features, tags=options.tags))


def name_of(targets: list[Target], options: ServeOptions, serving: Serving | None = None) -> str:
    """Name of the server; of a module's own server only once it is loaded."""
    own = None if serving is None or serving.server is None else serving.server.name
    return options.name or own or "-".join(dict.fromkeys(target.name for target in targets))


def server_of(
    ctx: click.Context,
    serving: Serving,
    name: str,
    options: ServeOptions,
    state_keys: Sequence[bytes] | None = None,
    *,
    has_limited_callers: bool = False,
) -> Server:
    """Build the server; without state keys, one is generated for this process."""
    from bridge.server.server import Server  # noqa: PLC0415 - after errors of the targets

    with usage_errors(ctx, DefinitionError):
        tool_search = options.tool_search.search(serving.tool_listing)
    given: ServerOptions = {
        "instructions": options.instructions,
        "page_size": options.page_size,
        "policy": options.spill.policy(options.limits.policy(), serving.features),
        "state_keys": state_keys,
        "limits": options.limits.limits(ctx, of_callers=has_limited_callers),
        "tool_search": tool_search,
        "events": options.events.options(ctx),
    }
    if options.no_card:
        given["card"] = False
    max_calls = None if options.transport == "stdio" else options.limits.max_calls
    tasks = options.tasks.options(None if options.transport == "stdio" else options.scaling)
    version = serving.version if options.server_version is None else options.server_version
    with usage_errors(ctx, ValueError):
        if (own := serving.server) is not None:
            if options.server_version is None:
                version = own.version or version
            if own.options["max_calls"] is not None:
                max_calls = own.options["max_calls"]
            if own.options["tasks"] is not None:
                tasks = own.options["tasks"]
            given = cast("ServerOptions", {key: value for key, value in given.items() if value is not None})
        all_given: ServerOptions = {**given, "name": name, "version": version, "max_calls": max_calls, "tasks": tasks}
        return Server(serving.features, **all_given) if own is None else own.with_options(serving.features, **all_given)

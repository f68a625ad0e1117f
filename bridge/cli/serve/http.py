"""``bridge serve`` over HTTP."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import typed_options, usage_errors
from bridge.cli.serve.check import report_check
from bridge.cli.serve.options import name_of, server_of, serving_of, targets_of, warn_unused_options
from bridge.cli.serve.telemetry_options import set_draining_source, telemetry_enabled
from bridge.cli.targets.client_entries import configuration, url_entry
from bridge.cli.targets.target import FileTarget, OpenApiTarget, split_targets
from bridge.errors import DefinitionError, TargetError
from bridge.hosting import reload, serve
from bridge.hosting import sockets as sockets_module
from bridge.hosting.admin_pages import admin_pages, admin_sockets
from bridge.hosting.child_process import InheritedSockets, WorkerChannel, inherited_sockets
from bridge.hosting.http.limits import ConnectionLimits
from bridge.hosting.process import DrainTimes, print_message
from bridge.hosting.server import Service
from bridge.hosting.service_manager import service_manager
from bridge.server.http.host_origin import AllowedHosts
from bridge.server.http.probes import HealthState
from bridge.server.results.costs import costs
from bridge.telemetry import current
from bridge.text import with_count

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Mapping, Sequence

    from bridge.cli.serve.administration import Administration
    from bridge.cli.serve.options import ServeOptions
    from bridge.cli.targets.serving import Serving
    from bridge.cli.targets.target import LocalTarget, Target
    from bridge.server.auth import Auth
    from bridge.server.http.app import BridgeApp
    from bridge.server.profiles import Profile
    from bridge.server.server import Server


def serve_http(ctx: click.Context, texts: tuple[str, ...], options: ServeOptions) -> None:
    """Serve over HTTP.

    Raises:
        click.UsageError: The options contradict each other.
        HostingError: The port cannot be bound.
    """
    _check_address(ctx, options)
    options.operations.check(ctx)
    options.scaling.check(ctx, transport=options.transport)
    options.tasks.check(ctx, is_shared=options.scaling.has_replicas, reload=options.reload)
    options.spill.check(ctx, has_separate_workers=options.scaling.are_sessions_lost)
    manager, inheritance = service_manager(), inherited_sockets()
    addresses = sockets_module.addresses_of(manager.sockets) or sockets_module.resolve(options.host, options.port)
    auth = _auth_at(ctx, options, addresses)
    options.limits.limits(ctx)  # report errors before a child is started
    options.scaling.secrets(ctx)
    targets = targets_of(ctx, texts, options)
    name = name_of(targets, options)
    local, _ = split_targets(targets)
    if inheritance is None:
        warn_unused_options(ctx, targets, options)
    if options.check:
        _serve_here(ctx, targets, options, auth, [], None)
        return
    if inheritance is None:
        options.tasks.reach_store()
        options.scaling.reach_redis()  # at start only; later outages are tolerated
        if options.scaling.has_private_state_key:
            print_message(
                "bridge serve: other replicas cannot decrypt the state that clients carry between the rounds of a "
                "call; set the same BRIDGE_STATE_KEYS for all replicas"
            )
    sockets = (
        manager.sockets or sockets_module.bind(addresses, "--port") if inheritance is None else inheritance.sockets
    )
    workers = options.scaling.workers
    if inheritance is not None or not ((options.reload and local) or workers > 1):
        _serve_here(ctx, targets, options, auth, sockets, inheritance)
        return
    admin = manager.admin_sockets or admin_sockets(options.operations.admin_host, options.operations.admin_port)
    inheritance = InheritedSockets(sockets=sockets, admin_sockets=admin)
    if workers == 1:
        reload.run_with_reload(sorted(_directories_of_all(local)), inheritance)
        return

    def announce(processes: int, profiles: Mapping[str, str]) -> None:
        _announce(name, sockets, options, profiles)
        print_message(options.scaling.missing_features())
        if processes:
            print_message(options.scaling.number_of_processes(processes))
        manager.ready(f"{workers} workers serve")

    from bridge.hosting.workers import run_workers  # noqa: PLC0415 - only with several workers

    changes = None
    if options.reload:
        from bridge.cli.targets.servers import followed_files  # noqa: PLC0415 - imports the client

        files = partial(followed_files, targets, options.upstream)
        changes = partial(reload.watch, files, _directories_of_all(local))
    has_keys = bool(options.scaling.state_keys)
    ctx.exit(run_workers(workers, inheritance, announce, has_keys=has_keys, changes=changes))


def _auth_at(ctx: click.Context, options: ServeOptions, addresses: Sequence[sockets_module.Address]) -> Auth | None:
    """Return the authentication; without it, the addresses must not be reachable from other machines."""
    auth = options.auth.auth(ctx)
    if auth is not None and options.no_auth:
        raise click.UsageError("--no-auth and keys or issuers exclude each other: leave one out", ctx)
    if auth is None and not options.no_auth and not sockets_module.are_loopback(addresses):
        raise click.UsageError(
            f"--host {options.host} can be reached from other machines without a key: "
            "set BRIDGE_API_KEY, --api-keys or --oauth-issuer, add --no-auth if that is intended, "
            "or listen on 127.0.0.1",
            ctx,
        )
    return auth


def _check_address(ctx: click.Context, options: ServeOptions) -> None:
    """Check the options of what is served at which path."""
    if options.transport == "sse" and options.no_sse:
        raise click.UsageError("--transport sse and --no-sse exclude each other: leave one out", ctx)
    if any(each.name == "profile" for each in typed_options(ctx)):
        raise click.UsageError("--profile is for stdio: over HTTP, each profile has a URL of its own", ctx)
    if not options.path.startswith("/"):
        raise click.UsageError(f"--path must begin with a slash, not {options.path!r}", ctx)


def _path_of(options: ServeOptions) -> str:
    return "/sse" if options.transport == "sse" else options.path


def _announce(name: str, sockets: list[socket.socket], options: ServeOptions, profiles: Mapping[str, str]) -> None:
    port = sockets[0].getsockname()[1]
    path, kind = _path_of(options), "sse" if options.transport == "sse" else "http"
    wants_key = bool(options.auth.api_key or options.auth.api_keys)
    host = sockets_module.connectable_host(options.host)
    for profile, at in profiles.items():
        print_message(f"serving {name}/{profile} at {sockets_module.url_of(options.host, port, at)}")
    if not profiles:
        print_message(f"serving {name} at {sockets_module.url_of(options.host, port, path)}")
        entry = url_entry(sockets_module.url_of(host, port, path), kind, wants_key=wants_key)
        print_message(configuration(name, entry))


def _announce_servers(serving: Serving, operations: HealthState) -> None:
    """Print how many of the servers of a gateway are ready, when their start ends."""

    def announce() -> None:
        servers = serving.servers()
        if len(servers) == 1 or not operations.is_steady:
            return
        ready = [each for each in servers if each["state"] in {"ready", "idle"}]
        tools = with_count(sum(len(each["tools"]) for each in ready), "tool")
        print_message(f"{len(ready)} of {len(servers)} servers are ready, with {tools}")

    if serving.features.start is not None:
        serving.features.start.on_end(announce)


def _loaded(
    ctx: click.Context, targets: list[Target], options: ServeOptions, inheritance: InheritedSockets | None
) -> Serving:
    """Load what is served.

    Raises:
        TargetError: This process is to replace another one, and its configuration has problems.
    """
    is_worker = inheritance is not None and inheritance.channel is not None
    followed = replace(options, reload=False) if is_worker else options  # all workers are replaced together
    serving = serving_of(targets, followed, options.scaling.secrets(ctx))
    if inheritance is not None and inheritance.is_reload and serving.problems:
        raise TargetError("; ".join(serving.problems))
    if serving.features.pages is not None:
        _check_public_url(ctx, options)
    return serving


def _serve_here(
    ctx: click.Context,
    targets: list[Target],
    options: ServeOptions,
    auth: Auth | None,
    sockets: list[socket.socket],
    inheritance: InheritedSockets | None,
) -> None:
    serving = _loaded(ctx, targets, options, inheritance)
    name = name_of(targets, options, serving)
    from bridge.server.unmatched_names import with_unmatched_warnings  # noqa: PLC0415 - after errors of the targets

    has_teams, chosen = auth is not None and auth.has_teams, options.operations
    administration = _administration(ctx, options)
    activity = None if administration is None else administration.activity
    with telemetry_enabled(options.telemetry, name, counts_teams=has_teams, activity=activity) as watched:
        has_limited_callers = auth is not None and auth.has_limits
        secrets = options.scaling.secrets(ctx)
        server = server_of(ctx, serving, name, options, secrets, has_limited_callers=has_limited_callers)
        operations = _operations(serving, server, has_teams=has_teams)
        metrics = None if watched.metrics is None else watched.metrics.text
        worker = None
        if inheritance is not None and inheritance.channel is not None:
            worker = WorkerChannel(inheritance.channel, lambda: operations.is_draining, metrics)
            metrics = None if metrics is None else worker.text
            operations.reload = worker.reload
            if options.scaling.redis_url is None:  # which shares them with all replicas
                worker.share_updates(server)
        with usage_errors(ctx, ValueError), usage_errors(ctx, DefinitionError):
            app = _app(server, options, auth, serving.profiles)
            if options.check:
                report_check(ctx, serving, server)
                return
            parts = (name, app, server, serving, operations)
            admin = None if administration is None else administration.app(*parts, auth, inheritance, worker)
            pages = admin_pages(
                app,
                operations,
                path=options.path,
                admin_host=chosen.admin_host,
                hosts=AllowedHosts(chosen.admin_host, options.allowed_hosts, options.allowed_origins),
                admin_port=chosen.admin_port,
                is_open=options.no_auth,
                metrics=metrics,
                auth=auth,
                sockets=(inheritance or service_manager()).admin_sockets,
                admin=admin,
            )

        profiles = {each.name: each.path_below(_path_of(options)) for each in serving.profiles}

        def announce() -> None:
            if administration is not None:
                administration.opened()
            if inheritance is not None and inheritance.opened is not None:
                with inheritance.opened as parent:
                    parent.send(b".")
            if worker is None:
                _announce(name, sockets, options, profiles)
                _announce_servers(serving, operations)
                service_manager().ready("serving")
            else:
                worker.opened(sum(server["transport"] == "stdio" for server in serving.servers()), profiles)

        service = Service(
            app=app,
            operations=operations,
            opened=announce,
            times=DrainTimes(delay_seconds=chosen.drain_delay, timeout_seconds=chosen.drain_timeout),
            lifespan=with_unmatched_warnings(server, serving.lifespan, app.profiles.values()),
            last_act=watched.closed_before(serving.last_act),
            reload=operations.reload if worker is None else None,
            start=server.features.start,
            is_late=inheritance is not None and inheritance.is_late,
            is_successor=inheritance is not None and inheritance.is_successor,
        )
        limits = ConnectionLimits(
            max_header_bytes=options.limits.max_header_bytes, max_connections=options.limits.max_connections
        )
        is_child, is_debug = inheritance is not None and worker is None, options.log_level == "debug"
        serve.serve_app(service, sockets, pages, limits, is_debug=is_debug, is_child=is_child)


def _operations(serving: Serving, server: Server, *, has_teams: bool) -> HealthState:
    """Return the state that the admin pages show."""
    operations = HealthState(servers=serving.servers, is_held=True)
    operations.costs = lambda: costs(server)
    if has_teams and (observer := current.observer()) is not None:
        operations.teams = observer.teams
    if serving.reload is not None:
        reloading = reload.Reloading(serving.reload)
        operations.reload, operations.configuration = reloading, reloading.status
    set_draining_source(lambda: operations.is_draining)
    return operations


def _administration(ctx: click.Context, options: ServeOptions) -> Administration | None:
    """Return the administration; None without keys of operators."""
    operators = options.operations.admin_auth(ctx)
    if operators is None:
        return None
    from bridge.cli.serve.administration import Administration  # noqa: PLC0415 - only with its keys

    return Administration(operators, options)


def _check_public_url(ctx: click.Context, options: ServeOptions) -> None:
    """Require the URL of the pages on which callers give credentials, unless they are for this machine."""
    addresses = sockets_module.resolve(options.host, options.port)
    if options.credentials.public_url or options.auth.resource_url or sockets_module.are_loopback(addresses):
        return
    raise click.UsageError(
        "callers give credentials on pages of this gateway, and the URL under which browsers reach it is not known: "
        "add --public-url https://gateway.example.com",
        ctx,
    )


def _app(server: Server, options: ServeOptions, auth: Auth | None, profiles: Sequence[Profile]) -> BridgeApp:
    from bridge.server.http.app import http_app  # noqa: PLC0415 - after errors of the targets

    for modern in (False, True):  # build the pages before objects are frozen for the garbage collector
        server.catalog.page(modern=modern)
    return http_app(
        server,
        max_sessions=options.limits.max_sessions,
        session_idle_seconds=options.limits.session_idle,
        path=options.path if options.transport == "http" else "/mcp",
        sse=not options.no_sse and options.scaling.workers == 1,
        stateless=options.scaling.are_sessions_lost,
        redis_url=options.scaling.redis_url,
        streamable=options.transport == "http",
        host=options.host,
        allowed_hosts=options.allowed_hosts,
        allowed_origins=options.allowed_origins,
        max_request_bytes=options.max_request_bytes,
        auth=auth,
        profiles=profiles,
    )


def _directories_of_all(targets: Iterable[LocalTarget]) -> set[str]:
    return {directory for target in targets for directory in _directories_of(target)}


def _directories_of(target: LocalTarget) -> list[str]:
    if isinstance(target, OpenApiTarget):
        return [str(target.path.parent)] if target.path else []
    if isinstance(target, FileTarget):
        path = target.path.resolve()
        return [str(path if path.is_dir() else path.parent)]
    name = target.module.partition(".")[0]
    spec = PathFinder.find_spec(name, [str(Path.cwd()), *sys.path])
    if spec is None:
        raise TargetError(f"there is no module {name!r}")
    if spec.submodule_search_locations:
        return [str(Path(place).resolve()) for place in spec.submodule_search_locations]
    return [str(Path(spec.origin or "").resolve().parent)]

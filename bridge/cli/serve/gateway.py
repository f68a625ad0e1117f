"""Gateway of ``bridge serve``: tools of targets, and their lifespan."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.cli.status import status_as_json
from bridge.cli.targets.features import in_use
from bridge.cli.targets.loading import load_features
from bridge.cli.targets.servers import lock_files, pinned, servers_of
from bridge.cli.targets.serving import Serving
from bridge.cli.targets.target import ConfigTarget
from bridge.client.connection.processes import DEFAULT_MAX_STARTS, ProcessOptions
from bridge.client.tool_catalog import server_prefixes
from bridge.client.transports.process import kill_all_children
from bridge.client.transports.stdio import StdioTransport
from bridge.errors import DefinitionError, TargetError
from bridge.gateway import Gateway, merged_servers
from bridge.gateway.profiles import profiles_of
from bridge.hosting.reload import apply_changes, watch
from bridge.private_files import state_folder
from bridge.server.auth.access import matches
from bridge.server.features import Features
from bridge.server.profiles import LOCAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from bridge.cli.options import UpstreamOptions
    from bridge.cli.targets.target import LocalTarget, RemoteTarget
    from bridge.client.config.servers import Prefixing, ServerConfig, ServersConfig
    from bridge.gateway.credentials.broker import CredentialBroker
    from bridge.gateway.credentials.identification import SignInClient
    from bridge.server.profiles import Profile, ToolListing

_logger = logging.getLogger("bridge.gateway")


def serve_gateway(
    local: Sequence[LocalTarget],
    remote: Sequence[RemoteTarget],
    options: UpstreamOptions,
    *,
    forward_headers: Sequence[str],
    reload: bool,
    start_seconds: float,
    max_starts: int | None,
    broker: Callable[[], CredentialBroker],
    sign_in_client: SignInClient | None,
    profile: str | None = None,
) -> Serving:
    """Build a gateway of remote targets, and of local ones, whose tools run in this process.

    Args:
        local: The local targets.
        remote: The remote targets.
        options: Options of their servers.
        forward_headers: Names of callers' headers that are forwarded.
        reload: True to follow changes of configurations, and of the lock files of their servers.
        start_seconds: Seconds to wait at the start for servers that are not required.
        max_starts: Servers over stdio that start at the same time; None for the default.
        broker: Makes what keeps the credentials of callers, if a server needs them.
        sign_in_client: As for `bridge.gateway.gateway.Gateway`.
        profile: The only profile to serve, given by name; None to serve all, or everything if there are none.

    Raises:
        ConfigError: A configuration, or the lock file, is invalid, or has no such profile.
        MissingExtraError: ``reload`` is set, and ``watchfiles`` is not installed.
        TargetError: A header cannot be forwarded, or a target has no tools.
    """
    profiles: tuple[Profile, ...] | None = None
    listing: ToolListing | None = None
    problems: tuple[str, ...] = ()
    files = _given_files(remote, options)

    def read() -> list[ServerConfig]:
        nonlocal profiles, listing
        configurations: list[ServersConfig] = []
        servers = merged_servers(
            (
                target.path.stem if isinstance(target, ConfigTarget) else target.name,
                pinned(servers_of(target, is_alone=False, on_read=configurations.append), options),
            )
            for target in remote
        )
        found = _profiles_of(configurations, profile)
        chosen = _tool_listing_of(servers)
        if profiles is not None and (
            changed := [*_changed(profiles, found), *(["tools"] if chosen != listing else [])]
        ):
            remedy = "restart the server, or serve with --workers, whose reload applies them"
            raise TargetError(f"this applies to a new process only: {', '.join(changed)} ({remedy})")
        profiles, listing = found, chosen
        files.update(lock_files(servers))
        return servers

    async def reload_servers() -> None:
        nonlocal problems
        servers = read()
        if new := [each for each in _problems_of(servers) if each not in problems]:
            raise TargetError("; ".join(new))
        await gateway.reconfigure(_of_profile(servers, profiles, profile, options.prefix))
        problems = _problems_of(servers)

    features = load_features(local) if local else Features()
    try:
        servers = read()
        unmatched = _unmatched(profiles or (), servers)
        problems = (*_problems_of(servers), *unmatched)
        for each in unmatched:
            _logger.warning("%s", each)
        gateway = Gateway(
            _of_profile(servers, profiles, profile, options.prefix),
            local=features,
            prefix=options.prefix,
            forward_headers=forward_headers,
            start_seconds=start_seconds,
            answers_early=True,
            broker=broker() if any(server.per_caller is not None for server in servers) else None,
            sign_in_client=sign_in_client,
            processes=_process_options(servers, max_starts, reload=reload),
        )
    except DefinitionError as error:
        raise TargetError(str(error)) from error
    changes = watch(lambda: files) if reload and files else None

    async def follow() -> None:
        await gateway.settle()
        if changes is not None:
            await apply_changes(changes, reload_servers)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with in_use(features), gateway:
            following = asyncio.create_task(follow())
            try:
                yield
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following

    return Serving(
        gateway.features,
        lifespan,
        kill_all_children,
        lambda: [*map(status_as_json, gateway.status())],
        tool_listing=listing,
        restart=gateway.restart,
        reload=reload_servers if files else None,
        problems=problems,
        profiles=profiles or (),
    )


def _given_files(targets: Sequence[RemoteTarget], options: UpstreamOptions) -> set[Path]:
    files = {target.path for target in targets if isinstance(target, ConfigTarget)}
    return files if options.pins is None else {*files, options.pins}


def _of_profile(
    servers: Sequence[ServerConfig], profiles: Sequence[Profile] | None, name: str | None, prefix: Prefixing | None
) -> Sequence[ServerConfig]:
    """Return the servers that the only profile has; all, if the names of its tools could depend on the others."""
    chosen = next((each.servers for each in profiles or () if each.name == name), None)
    if chosen is None or len(servers) == 1:
        return servers
    kept = [replace(each, prefixing="always") for each in servers if matches(chosen, each.name)]
    prefixes, of_kept = (server_prefixes(each.name for each in among) for among in (servers, kept))
    modes = {prefix, *(each.prefixing for each in servers)}
    depend = any(each.prefix is not None for each in servers) or of_kept.items() - prefixes.items()
    return servers if depend or not modes <= {None, "always"} else kept


def _tool_listing_of(servers: Sequence[ServerConfig]) -> ToolListing | None:
    return next((server.tool_listing for server in servers if server.tool_listing is not None), None)


def _changed(before: Sequence[Profile], after: Sequence[Profile]) -> list[str]:
    """Return what is different of profiles, in words."""
    old, new = {each.name: each for each in before}, {each.name: each for each in after}
    found = [f"the new profile {name!r}" for name in new if name not in old]
    found += [f"the removed profile {name!r}" for name in old if name not in new]
    return found + [f"the changed profile {name!r}" for name in new if old.get(name, new[name]) != new[name]]


def _unmatched(profiles: Sequence[Profile], servers: Sequence[ServerConfig]) -> list[str]:
    """Return the names and patterns of servers in profiles that no server has, in words."""
    names = [LOCAL, *(server.name for server in servers)]
    return [
        f"profile {profile.name!r}: no server is named {pattern!r} ({', '.join(names[1:])}, or {LOCAL!r})"
        for profile in profiles
        for pattern in profile.servers or ()
        if not any(matches((pattern,), name) for name in names)
    ]


def _problems_of(servers: Sequence[ServerConfig]) -> tuple[str, ...]:
    """Return what makes servers unusable: errors in their entries, and programs that cannot be found."""
    unusable = [server.transport for server in servers if server.transport.problems]
    found = [f"{transport.redacted()}: {problem}" for transport in unusable for problem in transport.problems]
    programs = {each.name: each.transport for each in servers if isinstance(each.transport, StdioTransport)}
    missing = {name: transport.missing_program for name, transport in programs.items()}
    lost = (f"server {name!r}: command not found: {program!r}" for name, program in missing.items() if program)
    return (*found, *lost)


def _process_options(servers: Sequence[ServerConfig], max_starts: int | None, *, reload: bool) -> ProcessOptions:
    """Return the options of child processes, which have a folder for definitions if a server may start lazily."""
    definitions = None
    if reload or any(server.start == "lazy" for server in servers):
        definitions = state_folder() / "definitions"
    return ProcessOptions(max_starts=max_starts or DEFAULT_MAX_STARTS, definitions=definitions)


def _profiles_of(configurations: Sequence[ServersConfig], name: str | None) -> tuple[Profile, ...]:
    """Return the profiles of configurations, or the one of a name.

    Raises:
        ConfigError: One is invalid.
        TargetError: There is none of the name.
    """
    if name is None and not any(each.profiles for each in configurations):
        return ()
    profiles = profiles_of(configurations)
    found = profiles if name is None else tuple(each for each in profiles if each.name == name)
    if not found:
        known = ", ".join(repr(each.name) for each in profiles) or "none"
        raise TargetError(f"there is no profile {name!r} ({known})")
    return found

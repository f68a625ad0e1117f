"""MCP servers of targets, and their tools during one command."""

from __future__ import annotations

import math
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from bridge.cli.interaction.channel import CommandChannel
from bridge.cli.reporting import CommandError
from bridge.cli.targets.target import CommandTarget, ConfigTarget, UrlTarget
from bridge.client.config.loading import load_config, parse_config
from bridge.client.config.servers import ServerConfig
from bridge.client.connection_pool import all_at_once
from bridge.client.provider import McpToolProvider
from bridge.client.transports.http import HttpTransport
from bridge.client.transports.stdio import StdioTransport
from bridge.errors import BridgeError, ServerError, TargetError, WireError
from bridge.hosting.process import print_message, run_interruptible
from bridge.text import with_count
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute_timed
from bridge.tools.tool import ToolExecutionRequest
from bridge.wire.cards import may_be_discovered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from bridge.cli.interaction.questions import QuestionAnswerer
    from bridge.cli.options import ServerOptions, UpstreamOptions
    from bridge.cli.targets.target import RemoteTarget, Target
    from bridge.client.config.servers import ServersConfig
    from bridge.client.config.variables import InputDefinition
    from bridge.client.tool_catalog import ServerStatus
    from bridge.tools.specification import ToolSpecification
    from bridge.tools.tool import Tool, ToolExecutionResult
    from bridge.types import Feature

_SEARCH_TOOL = "search_tools"
_CALLING_TOOLS = ("call_tool", "run_code")
"""Names of the tools of a server with tool search, behind those of servers."""


SETTLE_SECONDS = 10.0
"""Seconds that a short command waits for optional servers; it names those that are missing."""


def servers_of(
    target: RemoteTarget,
    *,
    is_alone: bool = True,
    reads_pins: bool = True,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
    on_read: Callable[[ServersConfig], object] = lambda _: None,
) -> list[ServerConfig]:
    """Resolve a target to servers.

    In a short command about this target only (``is_alone``), inputs of a configuration are requested from the user, and
    a single server is required. A ``profile`` has to be one of the configuration, which ``on_read`` gets. Variables of
    the configuration are those of ``environ``, by default of this process.

    Raises:
        ConfigError: The configuration is invalid, or has no profile of that name.
        TargetError: It has no server of that name.
    """
    match target:
        case UrlTarget():
            return _described_by(target, is_alone=is_alone) or [replace(_behind_url(target), required=is_alone)]
        case CommandTarget():
            command, *arguments = target.command
            transport = StdioTransport(command, args=tuple(arguments), inherit_env="all")
            return [ServerConfig(name=target.name, transport=transport, required=is_alone)]
        case ConfigTarget():
            config = read_configuration(target, is_alone=is_alone, reads_pins=reads_pins, environ=environ)
            on_read(config)
            if profile is not None:
                from bridge.gateway.profiles import profile_named  # noqa: PLC0415 - only with profiles

                profile_named(profile, config)
            # Of all servers, even with a profile, since the names of tools depend on their number.
            return _configured(target, config, is_alone=is_alone)


@cache
def _described_by(target: UrlTarget, *, is_alone: bool) -> list[ServerConfig]:
    """Return the servers that a card or a catalogue at a URL describes; empty for the URL of a server itself.

    Credentials of the command line are for the URL itself, and not for what it describes.

    Raises:
        ConfigError: A server needs something that is not set.
        TargetError: A card is malformed.
    """
    from bridge.client.discovery import discovered_servers  # noqa: PLC0415 - slow to import

    if target.headers or not may_be_discovered(target.url):
        return []
    try:
        entries = discovered_servers(target.url)
    except WireError as error:
        raise TargetError(f"{target.url}: {error}") from error
    if not entries:
        return []
    found = parse_config({"mcpServers": entries}, source=target.url, is_editable=False).servers.values()
    return [replace(each, required=is_alone and len(entries) == 1) for each in found]


def _behind_url(target: UrlTarget) -> ServerConfig:
    if not target.headers:
        return ServerConfig(name=target.name, transport=HttpTransport(target.url))
    entry = {"url": target.url.replace("${", "$${"), "headers": dict(target.headers)}
    return parse_config({"mcpServers": {target.name: entry}}, source="--header").servers[target.name]


def read_configuration(
    target: ConfigTarget, *, is_alone: bool, reads_pins: bool = True, environ: Mapping[str, str] | None = None
) -> ServersConfig:
    """Read the configuration of a target; inputs are requested from the user as in `servers_of`.

    Raises:
        ConfigError: It is invalid.
    """
    inputs = _asked if is_alone and sys.stdin.isatty() else None
    return load_config(target.path, environ=environ, inputs=inputs, reads_pins=reads_pins)


def _configured(target: ConfigTarget, config: ServersConfig, *, is_alone: bool) -> list[ServerConfig]:
    if target.server is None:
        if config.disabled and not config.servers:
            print_message(
                f"bridge: {target.path}: all of its servers are disabled ({', '.join(map(repr, config.disabled))})"
            )
        return list(config.servers.values())
    if (server := config.usable(target.server)) is None:
        raise TargetError(f"{target.path}: {config.why_missing(target.server)}")
    return [replace(server, required=True)] if is_alone else [server]


def _asked(definition: InputDefinition) -> str | None:
    label = definition.description or definition.id
    value: Any = click.prompt(label, default=definition.default, hide_input=definition.password, err=True)
    return str(value)


def default_lock(target: RemoteTarget) -> Path:
    """Lock file of a target whose configuration names none; for a URL or command, it is in the working directory."""
    if isinstance(target, ConfigTarget):
        return target.path.with_name(f"{target.path.stem}.lock.json")
    return Path("mcp.lock.json")


def with_timeout(server: ServerConfig, timeout_seconds: float | None) -> ServerConfig:
    """Limit all times of a server; None keeps its configuration."""
    if timeout_seconds is None:
        return server
    return replace(
        server,
        timeout_seconds=timeout_seconds,
        max_call_seconds=timeout_seconds,
        connect_timeout_seconds=timeout_seconds,
        connect_wait_seconds=min(server.connect_wait_seconds, timeout_seconds),
    )


def pinned(servers: Iterable[ServerConfig], options: UpstreamOptions) -> list[ServerConfig]:
    """Apply the lock file of the options, if there is one; a server that is not in it has no pins.

    Raises:
        ConfigError: The file is not a lock file.
    """
    if options.pins is None:
        return list(servers)
    from bridge.client.pins import ServerPins, load_pins  # noqa: PLC0415 - only with a lock file

    pins, nothing = load_pins(options.pins, mode=options.pin_mode), ServerPins.nothing(options.pin_mode)
    return [replace(server, pins=pins.get(server.name, nothing)) for server in servers]


def followed_files(targets: Iterable[Target], options: UpstreamOptions) -> set[Path]:
    """Return the configurations among targets, and the lock files that they or the options name."""
    found = set() if options.pins is None else {options.pins}
    for path in {target.path for target in targets if isinstance(target, ConfigTarget)}:
        found.add(path)
        with suppress(BridgeError):  # who reads it next says what is wrong
            found |= lock_files(load_config(path, reads_pins=False).servers.values())
    return found


def lock_files(servers: Iterable[ServerConfig]) -> set[Path]:
    """Return the lock files that the configurations of servers name."""
    return {Path(server.lock) for server in servers if server.lock is not None}


def servers_for_command(
    target: RemoteTarget, options: ServerOptions, profile: str | None = None, **given: Any
) -> list[ServerConfig]:
    """Resolve a target to servers for a short command; as `servers_of` and `pinned`."""
    found = servers_of(target, profile=profile, **given)
    servers = pinned([with_timeout(server, options.timeout) for server in found], options.upstream)
    prefixing = options.upstream.prefix
    return servers if prefixing is None else [replace(server, prefixing=prefixing) for server in servers]


@asynccontextmanager
async def provided_tools(
    servers: list[ServerConfig],
    answerer: QuestionAnswerer | None = None,
    *,
    name: str | None = None,
    uri: str | None = None,
    features: Sequence[Feature] = (),
    timeout_seconds: float | None = None,
) -> AsyncIterator[McpToolProvider]:
    """Connect to servers during this block; unavailable optional servers are logged, questions answered.

    Args:
        servers: The servers.
        answerer: Answers questions; None to have none.
        name: The only tool or prompt that is used; None for all. Its prefix may name the only server that is waited
            for.
        uri: The only resource that is used, likewise.
        features: What is listed beside tools.
        timeout_seconds: Maximum seconds to wait for optional servers; None for `SETTLE_SECONDS`.

    Raises:
        ServerError: A required server, or the only one, is unavailable.
        CommandError: All servers are unavailable.
    """
    if len(servers) == 1:
        servers = [replace(servers[0], required=True)]
    handlers = None if answerer is None else answerer.handlers()
    provider = McpToolProvider(servers, handlers=handlers, features=features)
    try:
        await provider.open(wait=False)
        owners = frozenset() if name is None else provider.owners_of(name)
        if uri is not None and (remote := provider.resources.uris.remote(uri)) is not None:
            owners = frozenset({remote.server})
        if owners:
            await settle(provider, math.inf, *owners)
        else:
            await _settle(provider, timeout_seconds or SETTLE_SECONDS)
        yield provider
    finally:
        with anyio.CancelScope(shield=True):  # each connection bounds its own shutdown
            await provider.aclose()


async def settle(provider: McpToolProvider, seconds: float, *names: str) -> None:
    """Wait for servers, by default all, and for optional ones at most some seconds; those that fail are logged.

    Raises:
        ServerError: A required server cannot be reached or listed.
    """
    selected = [upstream for name, upstream in provider.upstreams.items() if not names or name in names]
    optional = [upstream for upstream in selected if not upstream.config.required]

    async def settle_optional() -> None:
        with anyio.move_on_after(seconds):
            await all_at_once(upstream.require_settled for upstream in optional)

    required = [upstream.require_settled for upstream in selected if upstream.config.required]
    await all_at_once([*required, settle_optional])


async def _settle(provider: McpToolProvider, seconds: float) -> None:
    """Wait for all servers, and name those that are too slow.

    Raises:
        ServerError: A required server is unavailable.
        CommandError: All are.
    """
    await settle(provider, seconds)
    statuses = provider.status()
    for status in statuses:
        if not status.is_listed and status.problem is None:
            late = f"no answer within {with_count(seconds, 'second')}; --timeout SECONDS waits longer"
            print_message(f"bridge: without the server {status.name!r}: {late}", "warning")
    if statuses and not any(map(is_ready, statuses)):
        raise CommandError(f"none of the {len(statuses)} servers is available")


def is_ready(status: ServerStatus) -> bool:
    """True if a server is connected and its tools are listed."""
    return status.is_listed and status.problem is None


def call_tool(
    servers: list[ServerConfig],
    name: str,
    arguments_for: Callable[[ToolSpecification], Mapping[str, Any]],
    answerer: QuestionAnswerer | None = None,
    *,
    detach: bool = False,
    timeout_seconds: float | None = None,
) -> ToolExecutionResult | str:
    """Call one tool; progress is shown on a terminal, and questions are answered.

    With ``detach``, return the text of the task that its server has made of the call, or its direct answer. Also raises
    as `provided_tools` does.

    Raises:
        UnknownToolError: There is no such tool.
        ServerError: The server was lost, or refused the call.
    """

    async def work() -> ToolExecutionResult | str:
        async with provided_tools(servers, answerer, name=name, timeout_seconds=timeout_seconds) as provider:
            tool = _tool_of(provider, name)
            arguments = arguments_for(tool.specification)
            if detach:
                task = await provider.start(name, arguments)
                return str(task) if task.id else await task.result()
            if answerer is not None:
                answerer.asker = f"the server {tool.server!r}"
            with CommandChannel(answerer) as channel:
                context = InvocationContext(channel=channel)
                execution = await execute_timed(provider.tools, ToolExecutionRequest(name, arguments), context)
        if isinstance(error := execution.error and execution.error.__cause__, ServerError):
            raise error
        return execution.result

    return run_interruptible(work)


def _tool_of(provider: McpToolProvider, name: str) -> Tool:
    if (tool := provider.tools.find(name)) is None:
        error = provider.unknown_tool(name)
        names = [each.name for each in provider.tools]
        by = next((each for each in names if each.endswith(_CALLING_TOOLS)), None)
        if by is not None and any(each.endswith(_SEARCH_TOOL) for each in names):
            shown = f"{by} name={name} arguments='{{…}}'" if by.endswith(_CALLING_TOOLS[0]) else f"{by} code='…'"
            error.args = (f"{error}; the server does not list all of its tools, call such a one with: {shown}",)
        raise error
    return tool

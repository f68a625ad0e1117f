"""Configuration values: servers and their settings. They compare by content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.client.auth.grants import PerCaller
from bridge.client.config.document import EXTENSION_RULE
from bridge.client.transports.transport import Transport
from bridge.errors import ConfigError, DefinitionError
from bridge.tools.annotated_checks import check_fields
from bridge.tools.checks import require_type
from bridge.wire.extension import EXTENSION_PATTERN, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.config.profiles import ProfileEntry
    from bridge.client.pins import ServerPins
    from bridge.types import Json

ProtocolPin: TypeAlias = Literal["auto", "legacy", "2026-07-28"]
"""The protocol: negotiated, the handshake era, or that version."""

DEFAULT_MAX_CALL_SECONDS = 600.0
"""Maximum seconds of a call with progress."""

Prefixing: TypeAlias = Literal["always", "on_collision", "never"]
"""When the server's name is prepended to its tool names."""
StartMode: TypeAlias = Literal["eager", "lazy"]
"""When the process of a server is started: with its provider or gateway, or when it is first needed."""
DEFAULT_IDLE_SECONDS = 300.0
"""Seconds without calls after which a process that is started when it is needed is ended."""
ToolListing: TypeAlias = Literal["all", "search", "auto", "code"]
"""Tools that clients of a gateway list; see `bridge.server.ServerToolSearch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One server: its transport and settings."""

    name: str
    """Name in the configuration."""
    transport: Transport
    """Transport of the server."""
    timeout_seconds: float = 60.0
    """Maximum seconds of a call without progress; each progress notification restarts them."""
    max_call_seconds: float = DEFAULT_MAX_CALL_SECONDS
    """Maximum seconds of a call in total."""
    connect_timeout_seconds: float = 30.0
    """Maximum seconds of start and handshake."""
    connect_wait_seconds: float = 5.0
    """Maximum seconds that a call waits for an unavailable server."""
    start: StartMode = "eager"
    """``lazy`` if the server's process is started for the first call, and ended after `idle_seconds`; its lists are
    those of the last time. A server that was never listed is started once to list it."""
    idle_seconds: float = DEFAULT_IDLE_SECONDS
    """Seconds without calls after which the process of a lazily started server, or of a caller, is ended, at most
    twice as many."""
    process_per: Literal["caller"] | None = None
    """``caller`` if a gateway starts a process for each of its callers, which is ended after `idle_seconds` without
    calls; callers without an identity share one. None for one process."""
    required: bool = False
    """True if startup fails without this server."""
    trusted: bool = False
    """Rely on the server's annotations.

    Calls of tools annotated as idempotent or read-only may be repeated; read-only tools run without approval.
    """
    prefix: str | None = None
    """Text that is prepended to the server's tool names; None to use `prefixing`."""
    prefixing: Prefixing | None = None
    """When the server's name is prepended to its tool names. None: always with several servers, only on a collision
    with one."""
    include: tuple[str, ...] | None = None
    """The only tools to use, by remote name; ``*`` and ``?`` match as in file names. None for all."""
    exclude: tuple[str, ...] = ()
    """Tools to leave out, with the same wildcards; takes precedence over `include`."""
    include_resources: tuple[str, ...] | None = None
    """The only resources and templates to use, by URI or by the text of a template; likewise."""
    exclude_resources: tuple[str, ...] = ()
    """Resources and templates to leave out, likewise."""
    include_prompts: tuple[str, ...] | None = None
    """The only prompts to use, by remote name; likewise."""
    exclude_prompts: tuple[str, ...] = ()
    """Prompts to leave out, likewise."""
    always_visible: tuple[str, ...] = ()
    """Tools, likewise, that a model sees even if it searches for the others."""
    tool_listing: ToolListing | None = None
    """Tools that clients of a gateway list, as its configuration says; None if it does not."""
    extensions: Mapping[str, Json] = field(default_factory=dict)
    """Extensions to declare to the server, with their settings, by identifier. A gateway passes them on in both
    directions; the settings of a caller take precedence where they are declared with each request."""
    unjudged_results: Literal["pass", "refuse"] = "pass"
    """Handling of structured content that cannot be validated within the limits."""
    spill_chars: int | None = None
    """Characters up to which results of its tools stay whole where they are served; see `bridge.tools.Spill`. None for
    the limit of the gateway or service."""
    protocol: ProtocolPin = "auto"
    """The protocol version to use."""
    pins: ServerPins | None = None
    """Pins of the reviewed tools, resources and prompts; those that differ are refused or flagged. None for no pins."""
    list_per: Literal["caller"] | None = None
    """``caller`` if a gateway lists the server's tools for each of its callers; None to list them once, if the server
    lets the gateway, with the configured headers, and for each caller otherwise."""
    lock: str | None = field(default=None, compare=False)
    """The lock file in the configuration; None for none."""

    def __post_init__(self) -> None:
        """Check the types, and the identifiers of extensions.

        Raises:
            DefinitionError: A value has the wrong type, or an identifier is malformed, or is that of tasks; or only
                processes can be started lazily.
        """
        check_fields(self, may_be_zero=("connect_wait_seconds",))
        require_type(self.transport, Transport, "transport of ServerConfig", "a transport, such as HttpTransport(…)")
        if (self.start == "lazy" or self.process_per is not None) and not self.transport.is_process:
            name = "start='lazy'" if self.start == "lazy" else "process_per='caller'"
            raise DefinitionError(f"server {self.name!r}: {name} needs a command to start")
        for identifier in self.extensions:
            if not is_configurable_extension(identifier):
                raise DefinitionError(f"server {self.name!r}, extension {identifier!r}: extensions {EXTENSION_RULE}")

    @property
    def per_caller(self) -> PerCaller | None:
        """Credentials of a gateway's callers; None if all have the same."""
        auth = getattr(self.transport, "auth", None)
        return auth if isinstance(auth, PerCaller) else None

    def admits(self, tool_name: str) -> bool:
        """True if a tool, given by remote name, is included."""
        return _is_selected(tool_name, self.include, self.exclude)

    def admits_resource(self, uri: str) -> bool:
        """True if a resource, given by its URI on the server, or a template, by its text, is included."""
        return _is_selected(uri, self.include_resources, self.exclude_resources)

    def admits_prompt(self, name: str) -> bool:
        """True if a prompt, given by remote name, is included."""
        return _is_selected(name, self.include_prompts, self.exclude_prompts)


def is_configurable_extension(identifier: str) -> bool:
    """True for a valid identifier of an extension that is not built in."""
    return identifier != TASKS.id and re.fullmatch(EXTENSION_PATTERN, identifier) is not None


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    """True if a name or URI matches one of these patterns; ``*`` and ``?`` match as in file names."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _is_selected(text: str, include: Iterable[str] | None, exclude: Iterable[str]) -> bool:
    return (include is None or matches_any(text, include)) and not matches_any(text, exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersConfig:
    """The servers of one configuration."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    """The enabled servers by name, in the order of the file. An unusable entry has an
    `bridge.client.transports.transport.UnusableTransport`."""
    disabled: tuple[str, ...] = ()
    """Names of the disabled servers; their entries are not read."""
    warnings: tuple[str, ...] = ()
    """Warnings, each a sentence that names the server and the key."""
    profiles: Mapping[str, ProfileEntry] = field(default_factory=dict)
    """Profiles of a gateway by name; see `bridge.gateway.profiles`."""
    source: str = "configuration"
    """The file, or another name of the source."""

    def usable(self, name: str) -> ServerConfig | None:
        """Return the server of a name; None if there is none.

        Raises:
            ConfigError: The server's entry is unusable.
        """
        server = self.servers.get(name)
        if server is not None and server.transport.problems:
            raise ConfigError(self.source, server.transport.problems)
        return server

    def why_missing(self, name: str) -> str:
        """Explain why there is no server of a name."""
        if name in self.disabled:
            return f"{name!r} is disabled"
        return f"{name!r} is not one of its servers ({', '.join(map(repr, self.servers)) or 'none'})"

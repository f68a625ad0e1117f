"""Configuration values: servers and their transports.

Values compare by content, so that reading a configuration again shows which servers changed. Possible secrets
(variables, headers, credentials, expanded references) are never in a repr; errors use `redacted`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bridge.client.redaction import HIDDEN, redact_command, redact_url, scrub
from bridge.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.client.auth.grants import Grant
    from bridge.client.tool_pins import ServerPins
    from bridge.errors import ConfigProblem

InheritEnvironment: TypeAlias = Literal["minimal", "all"] | tuple[str, ...]
"""Environment variables that a child process inherits: the essential ones (``PATH``, ``HOME``, …), all, or the
essential ones and these."""

ProtocolPin: TypeAlias = Literal["auto", "legacy", "2026-07-28"]
"""The protocol: negotiated, the handshake era, or that version."""

DEFAULT_TIMEOUT_SECONDS = 60.0
"""Maximum seconds of a call without progress."""

DEFAULT_MAX_CALL_SECONDS = 600.0
"""Maximum seconds of a call with progress."""

DEFAULT_CONNECT_TIMEOUT_SECONDS = 30.0
"""Maximum seconds of a server's start and handshake."""

DEFAULT_CONNECT_WAIT_SECONDS = 5.0
"""Maximum seconds that a call waits for an unavailable server."""

Prefixing: TypeAlias = Literal["always", "on_collision", "never"]
"""When the server's name is prepended to its tool names."""


@dataclass(frozen=True, slots=True, repr=False)
class StdioTransport:
    """A server that runs as a child process and communicates over standard input and output."""

    command: str
    """The program."""
    _: KW_ONLY
    args: tuple[str, ...] = ()
    """The program's arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to the inherited ones."""
    cwd: str | None = None
    """The child's working directory; None for this process's."""
    inherit_env: InheritEnvironment = "minimal"
    """Environment variables that the child inherits."""
    shown: str | None = field(default=None, compare=False)
    """The redacted command line, if it is known better than by heuristics; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts from variables or the user, which may be secret; see `scrub`."""

    def redacted(self) -> str:
        """The command line without secrets."""
        return self.shown if self.shown is not None else redact_command((self.command, *self.args)).shown

    def scrub(self, text: str) -> str:
        """Remove this transport's secrets from a text, such as the child's standard error."""
        guessed = redact_command((self.command, *self.args)).secrets
        return scrub(text, (*self.env.values(), *self.expanded, *guessed))

    def __repr__(self) -> str:
        return (
            f"StdioTransport({self.redacted()!r}, env={dict.fromkeys(self.env, HIDDEN)!r}, "
            f"cwd={self.cwd!r}, inherit_env={self.inherit_env!r})"
        )


@dataclass(frozen=True, slots=True, repr=False)
class HttpTransport:
    """A server behind a URL."""

    url: str
    """The server's URL, ``http`` or ``https``."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every request."""
    auth: Grant | None = None
    """Grant type; None to use `headers`, or else a stored login."""
    kind: Literal["http", "sse"] | None = None
    """Streamable HTTP, or HTTP with SSE; None to detect it (POST, then GET; MCP, Transports, "Backwards
    Compatibility")."""
    shown: str | None = field(default=None, compare=False)
    """The redacted URL, if it is known better than by heuristics; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts from variables or the user, which may be secret; see `scrub`."""
    login_target: str | None = field(default=None, compare=False)
    """Argument for ``bridge login``, if it is not the URL."""

    def redacted(self) -> str:
        """The URL without secrets."""
        return self.shown if self.shown is not None else redact_url(self.url).shown

    def scrub(self, text: str) -> str:
        """Remove this transport's secrets from a text, such as another library's error."""
        values = self.headers.values()
        credentials = (value.partition(" ")[2] for value in values)
        of_auth = self.auth.secrets if self.auth is not None else ()
        return scrub(text, (*values, *credentials, *of_auth, *self.expanded, *redact_url(self.url).secrets))

    def __repr__(self) -> str:
        headers = dict.fromkeys(self.headers, HIDDEN)
        auth = f", auth={self.auth!r}" if self.auth is not None else ""
        return f"HttpTransport({self.redacted()!r}, headers={headers!r}{auth}, kind={self.kind!r})"


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTransport:
    """A server in this process."""

    server: Any
    """The SDK's low-level ``Server`` (for example the ``server`` of a `bridge.server.publisher.Publisher`) or
    ``MCPServer``."""

    def redacted(self) -> str:
        """A description of the address."""
        return "this process"

    def scrub(self, text: str) -> str:
        """Return the text unchanged: there are no secrets."""
        return text

    def __repr__(self) -> str:
        return "MemoryTransport(…)"


@dataclass(frozen=True, slots=True)
class UnusableTransport:
    """Transport of a server whose configuration is invalid: every connection fails with the reason."""

    problems: tuple[ConfigProblem, ...]
    """Problems of this server's configuration."""

    @property
    def reason(self) -> str:
        """The problems as a sentence, without the server's name."""
        problems = "; ".join(str(replace(problem, server=None)) for problem in self.problems)
        return f"its configuration cannot be used: {problems}"

    def redacted(self) -> str:
        """A description of the address."""
        return "nowhere"

    def scrub(self, text: str) -> str:
        """Return the text unchanged: problems contain no secrets."""
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One server: its transport and settings."""

    name: str
    """Name in the configuration."""
    transport: StdioTransport | HttpTransport | MemoryTransport | UnusableTransport
    """Transport of the server."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """Maximum seconds of a call without progress; each progress notification restarts them."""
    max_call_seconds: float = DEFAULT_MAX_CALL_SECONDS
    """Maximum seconds of a call in total."""
    connect_timeout_seconds: float = DEFAULT_CONNECT_TIMEOUT_SECONDS
    """Maximum seconds of start and handshake."""
    connect_wait_seconds: float = DEFAULT_CONNECT_WAIT_SECONDS
    """Maximum seconds that a call waits for an unavailable server."""
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
    unjudged_results: Literal["pass", "refuse"] = "pass"
    """Handling of structured content that cannot be validated within the limits."""
    protocol: ProtocolPin = "auto"
    """The protocol version to use."""
    pins: ServerPins | None = None
    """Pins of the reviewed tools; tools that differ are refused or flagged. None for no pins."""
    lock: str | None = field(default=None, compare=False)
    """The lock file in the configuration; None for none."""

    def with_login_target(self, target: str) -> ServerConfig:
        """Copy the server with an argument for ``bridge login``."""
        if not isinstance(self.transport, HttpTransport):
            return self
        return replace(self, transport=replace(self.transport, login_target=target))

    def admits(self, tool_name: str) -> bool:
        """True if a tool, given by remote name, is included."""
        included = self.include is None or any(fnmatchcase(tool_name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(tool_name, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersConfig:
    """The servers of one configuration."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    """The enabled servers by name, in the order of the file. An unusable entry has an `UnusableTransport`."""
    disabled: tuple[str, ...] = ()
    """Names of the disabled servers; their entries are not read."""
    warnings: tuple[str, ...] = ()
    """Warnings, each a sentence that names the server and the key."""
    source: str = "configuration"
    """The file, or another name of the source."""

    def usable(self, name: str) -> ServerConfig | None:
        """Return the server of a name; None if there is none.

        Raises:
            ConfigError: The server's entry is unusable.
        """
        server = self.servers.get(name)
        if server is not None and isinstance(server.transport, UnusableTransport):
            raise ConfigError(self.source, server.transport.problems)
        return server

    def why_missing(self, name: str) -> str:
        """Explain why there is no server of a name."""
        if name in self.disabled:
            return f"{name!r} is disabled"
        return f"{name!r} is not one of its servers ({', '.join(map(repr, self.servers)) or 'none'})"

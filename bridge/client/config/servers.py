"""What a configuration says, as values: servers and the transports that reach them.

Values compare by what they say, so that a configuration read again shows which servers changed. What may be secret
(variables, headers, credentials, expanded references) is never in a repr; `redacted` is what an error may show.
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
"""What a child inherits: what any program needs (``PATH``, ``HOME``, …), everything, or these variables beside that."""

ProtocolPin: TypeAlias = Literal["auto", "legacy", "2026-07-28"]
"""The protocol to speak: negotiated, the handshake era, or that version."""

DEFAULT_TIMEOUT_SECONDS = 60.0
"""How long a call may go without progress."""

DEFAULT_MAX_CALL_SECONDS = 600.0
"""How long a call may take with progress."""

DEFAULT_CONNECT_TIMEOUT_SECONDS = 30.0
"""How long a server may take to start and to greet."""

DEFAULT_CONNECT_WAIT_SECONDS = 5.0
"""How long a call waits for a server that is down."""

Prefixing: TypeAlias = Literal["always", "on_collision", "never"]
"""When a server's name stands before the names of its tools."""


@dataclass(frozen=True, slots=True, repr=False)
class StdioTransport:
    """A server that is a child process and speaks over its standard input and output."""

    command: str
    """The program."""
    _: KW_ONLY
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the child gets beside what it inherits."""
    cwd: str | None = None
    """The folder that the child starts in; None for this process's."""
    inherit_env: InheritEnvironment = "minimal"
    """What the child inherits of this process's environment."""
    shown: str | None = field(default=None, compare=False)
    """The command line as it may be shown, where more is known than can be guessed; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts that came from variables or a person, and so may be secret; see `scrub`."""

    def redacted(self) -> str:
        """The command line as it may be shown."""
        return self.shown if self.shown is not None else redact_command((self.command, *self.args)).shown

    def scrub(self, text: str) -> str:
        """A foreign text, such as the child's last words, without what is secret here."""
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
    """Where the server is: ``http`` or ``https``."""
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that go with every request."""
    auth: Grant | None = None
    """How to come to tokens; None for what `headers` say, and otherwise for what a person has logged in to."""
    kind: Literal["http", "sse"] | None = None
    """Streamable HTTP, or HTTP with SSE; None to find out (POST, then GET; MCP transports, backwards compatibility)."""
    shown: str | None = field(default=None, compare=False)
    """The URL as it may be shown, where more is known than can be guessed; see `redacted`."""
    expanded: tuple[str, ...] = field(default=(), compare=False)
    """Texts that came from variables or a person, and so may be secret; see `scrub`."""
    login_target: str | None = field(default=None, compare=False)
    """What ``bridge login`` is to be given, where that is not the URL."""

    def redacted(self) -> str:
        """The URL as it may be shown."""
        return self.shown if self.shown is not None else redact_url(self.url).shown

    def scrub(self, text: str) -> str:
        """A foreign text, such as another library's error, without what is secret here."""
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
    """The SDK's low-level ``Server``, such as a `bridge.server.publisher.Publisher`'s ``server``, or its ``MCPServer``.
    """

    def redacted(self) -> str:
        """Where it is, as it may be shown."""
        return "this process"

    def scrub(self, text: str) -> str:
        """The text: nothing is secret here."""
        return text

    def __repr__(self) -> str:
        return "MemoryTransport(…)"


@dataclass(frozen=True, slots=True)
class UnusableTransport:
    """A server that its configuration does not say how to reach: every connection fails with the reason."""

    problems: tuple[ConfigProblem, ...]
    """What is wrong with the configuration of this server."""

    @property
    def reason(self) -> str:
        """What is wrong, in words, without the server's name."""
        told = "; ".join(str(replace(problem, server=None)) for problem in self.problems)
        return f"its configuration cannot be used: {told}"

    def redacted(self) -> str:
        """Where it is, as it may be shown."""
        return "nowhere"

    def scrub(self, text: str) -> str:
        """The text: problems quote no value that may be secret."""
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One server: how to reach it and how to treat it."""

    name: str
    """What the configuration calls it."""
    transport: StdioTransport | HttpTransport | MemoryTransport | UnusableTransport
    """How to reach it."""
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """How long a call may go without progress; each sign of progress begins it anew."""
    max_call_seconds: float = DEFAULT_MAX_CALL_SECONDS
    """How long a call may take whatever its progress."""
    connect_timeout_seconds: float = DEFAULT_CONNECT_TIMEOUT_SECONDS
    """How long the server may take to start and to greet."""
    connect_wait_seconds: float = DEFAULT_CONNECT_WAIT_SECONDS
    """How long a call waits for the server while it is down."""
    required: bool = False
    """Without this server there is nothing to offer; others are only missed."""
    trusted: bool = False
    """Rely on the server's annotations.

    A call of a tool that says it is idempotent or read-only may be repeated; a read-only one runs without approval.
    """
    prefix: str | None = None
    """Stands before the names of the server's tools; None leaves it to `prefixing`."""
    prefixing: Prefixing | None = None
    """When the server's name stands before the names of its tools. None: always where there are several servers, and
    only before a name that is taken where there is one."""
    include: tuple[str, ...] | None = None
    """The only tools to take, by remote name; ``*`` and ``?`` match as in file names. None for all."""
    exclude: tuple[str, ...] = ()
    """Tools to leave out, in the same way; stronger than `include`."""
    unjudged_results: Literal["pass", "refuse"] = "pass"
    """What becomes of structured content that cannot be checked against its schema within the bounds."""
    protocol: ProtocolPin = "auto"
    """The protocol to speak."""
    pins: ServerPins | None = None
    """What its tools were when somebody looked at them; others are refused or flagged. None for whatever it offers."""
    lock: str | None = field(default=None, compare=False)
    """The lock file that its configuration names; None where it names none."""

    def with_login_target(self, target: str) -> ServerConfig:
        """The server, knowing what ``bridge login`` is to be given for it."""
        if not isinstance(self.transport, HttpTransport):
            return self
        return replace(self, transport=replace(self.transport, login_target=target))

    def admits(self, tool_name: str) -> bool:
        """Whether a tool of the server, by its remote name, is to be taken."""
        included = self.include is None or any(fnmatchcase(tool_name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(tool_name, pattern) for pattern in self.exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersConfig:
    """The servers of one configuration."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    """The enabled servers by name, in the order of the file. One whose entry cannot be used has an
    `UnusableTransport`."""
    disabled: tuple[str, ...] = ()
    """The names of the servers that are switched off; nothing else of them was read."""
    warnings: tuple[str, ...] = ()
    """What is doubtful, each a sentence that names the server and the key."""
    source: str = "configuration"
    """The file, or what else the configuration was read from."""

    def usable(self, name: str) -> ServerConfig | None:
        """The server of a name; None where there is none.

        Raises:
            ConfigError: Its entry cannot be used.
        """
        server = self.servers.get(name)
        if server is not None and isinstance(server.transport, UnusableTransport):
            raise ConfigError(self.source, server.transport.problems)
        return server

    def why_missing(self, name: str) -> str:
        """Why there is no server of a name, in words."""
        if name in self.disabled:
            return f"{name!r} is disabled"
        return f"{name!r} is not one of its servers ({', '.join(map(repr, self.servers)) or 'none'})"

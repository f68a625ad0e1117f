"""Transports of servers, and the links by which a session is opened over them.

    Transport ── address and settings of one server; names and explains itself without secrets
        ╰── Link ── one attempt to reach the server, and its state while the session lasts

A new transport is one file with a subclass of each. One that ``mcp.json`` can name is also listed in
`bridge.client.config.loading`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bridge.client.transports.link import Cause, TransportFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.client.auth.grants import OAuthLogin
    from bridge.client.config.variables import Expanded
    from bridge.client.transports.link import Link, LinkOptions
    from bridge.errors import ConfigProblem


def secrets_of(*texts: Expanded) -> tuple[str, ...]:
    """Values of variables and inputs in expanded texts, each once."""
    return tuple(dict.fromkeys(secret for text in texts for secret in text.secrets))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginTarget:
    """Resource to which a user can log in with a browser (``bridge login``)."""

    url: str
    """The server's URL."""
    headers: Mapping[str, str]
    """Headers of every request."""
    grant: OAuthLogin
    """OAuth client of the login."""
    is_configured: bool
    """True if the configuration names the login; otherwise the server may not need one."""


class Transport(ABC):
    """Address of a server, with all settings that are needed to reach it.

    Values compare by content, so that reading a configuration again shows which servers changed. Possible secrets
    (variables, headers, credentials, expanded references) are never in a repr; errors use `redacted`.
    """

    __slots__ = ()

    takes_headers: ClassVar[bool] = False
    """True if requests carry HTTP headers, and so the identity of a caller."""
    is_process: ClassVar[bool] = False
    """True if the server is a child process."""
    opening_phase: ClassVar[str] = "connecting"
    """Action in progress while a session is opened, for errors."""
    address_key: ClassVar[str] = ""
    """Key of an entry in ``mcp.json`` that selects this transport; empty if none does."""
    entry_types: ClassVar[frozenset[str]] = frozenset()
    """Values of ``type`` in an entry that name this transport."""
    entry_keys: ClassVar[frozenset[str]] = frozenset()
    """Further keys of an entry that are valid only with this transport."""

    @classmethod
    def from_entry(cls, entry: Any, reader: Any) -> Self:
        """Create the transport of a validated entry in ``mcp.json`` with the reader of its values."""
        raise NotImplementedError(f"{cls.__name__} has no form in mcp.json")

    @property
    def kind(self) -> str | None:
        """Kind of the link; None if it is not known before the handshake."""
        return None

    @property
    def problems(self) -> Sequence[ConfigProblem]:
        """Problems that make the transport unusable."""
        return ()

    @property
    def host_and_port(self) -> tuple[str, int] | None:
        """Network address, for telemetry; None if there is none."""
        return None

    @property
    def login(self) -> LoginTarget | None:
        """Target of a login by a user; None if the transport supports none or has other credentials."""
        return None

    @abstractmethod
    def redacted(self) -> str:
        """The address without secrets: a command line or a URL."""

    @abstractmethod
    def scrub(self, text: str) -> str:
        """Remove this transport's secrets from a text."""

    @abstractmethod
    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:
        """Create the links to try, in order, at least one.

        `last_kind` is the kind of the link over which the server was reached before.

        Raises:
            TransportFailedError: The transport cannot be used.
        """

    def with_headers(self, headers: Mapping[str, str]) -> Transport:  # noqa: ARG002 - for transports with headers
        """Copy the transport with these headers merged over the configured ones; itself if it has no headers."""
        return self

    def with_login_target(self, target: str) -> Transport:  # noqa: ARG002 - for transports with a login
        """Copy the transport with an argument for ``bridge login``; itself if it has no login."""
        return self

    def explain_refusal(self, error: Exception) -> Cause | None:  # noqa: ARG002 - likewise
        """Explain the refusal of a call by the transport's error; None if the server's error explains it."""
        return None


@dataclass(frozen=True, slots=True)
class UnusableTransport(Transport):
    """Transport of a server whose configuration is invalid: every connection fails with the reason."""

    problems: tuple[ConfigProblem, ...]
    """Problems of this server's configuration."""
    source: str = "the configuration"
    """Name of the file, or of another source, for messages."""

    @property
    def reason(self) -> str:
        """The problems as a sentence, without the server's name."""
        problems = "; ".join(str(replace(problem, server=None)) for problem in self.problems)
        return f"its configuration cannot be used: {problems}"

    def redacted(self) -> str:
        """The source of the entry, which has no address."""
        return self.source

    def scrub(self, text: str) -> str:
        """Return the text unchanged: problems contain no secrets."""
        return text

    def links(self, options: LinkOptions, last_kind: str | None) -> Sequence[Link]:  # noqa: ARG002
        """Raise the reason.

        Raises:
            TransportFailedError: Always.
        """
        hint = f"fix its entry in {self.source}; other servers are not affected"
        raise TransportFailedError(Cause(self.reason, hint, is_permanent=True))

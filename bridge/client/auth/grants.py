"""OAuth 2.1 grant types, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ClientAuthentication: TypeAlias = Literal["client_secret_basic", "client_secret_post"]
"""Method by which a client sends its secret to the authorization server: in a header, or in the body."""

AssertionSource: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Returns the identity assertion for an authorization server's issuer and an MCP server's URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthLogin:
    """A user logs in with a browser, with ``bridge login`` (authorization code with PKCE).

    Without a client ID, a client is registered with the authorization server (by its metadata document if it has one,
    else dynamically) and stored.
    """

    client_id: str | None = None
    """ID of a pre-registered client; None for none."""
    client_secret: str | None = field(default=None, repr=False)
    """Secret of the client; None for a public client."""
    client_authentication: ClientAuthentication | None = None
    """Method by which the secret is sent; None to choose from the authorization server's metadata."""
    client_metadata_url: str | None = None
    """URL of the Client ID Metadata Document; used as client ID if the authorization server supports it."""
    issuer: str | None = None
    """The only authorization server that is used and receives the secret; None for the server's choice."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty for those that the server asks for."""
    redirect_uri: str | None = None
    """Redirect URI, ``http`` on this machine. None for a free port."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        return (self.client_secret,) if self.client_secret else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The program's own credentials, without a user (client credentials; RFC 7523 with a key)."""

    client_id: str
    """Client ID."""
    issuer: str
    """The only authorization server that receives the credentials."""
    client_secret: str | None = field(default=None, repr=False)
    """Client secret; None if it has a key."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """Method by which the secret is sent."""
    private_key: str | None = field(default=None, repr=False)
    """Private key that signs client assertions, as PEM; None if it has a secret."""
    signing_algorithm: str = "RS256"
    """JSON Web Algorithm of the key."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty for those that the server asks for."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        return tuple(secret for secret in (self.client_secret, self.private_key) if secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAssertion:
    """Assertion of an identity provider for a user or a workload (JWT bearer, RFC 7523 section 2.1).

    Used for Enterprise-Managed Authorization, with assertions of `bridge.client.auth.assertions.exchange_assertion`,
    and for Workload Identity Federation, with the platform's assertions.
    """

    client_id: str
    """Client ID at the authorization server."""
    issuer: str
    """The authorization server."""
    assertion: AssertionSource = field(repr=False)
    """Returns the assertion."""
    client_secret: str | None = field(default=None, repr=False)
    """Client secret; None for a public client."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """Method by which the secret is sent."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty for those that the server asks for."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        return (self.client_secret,) if self.client_secret else ()


Grant: TypeAlias = OAuthLogin | ClientCredentials | IdentityAssertion
"""Any grant type."""

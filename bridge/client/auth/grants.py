"""Grants: how this side may come to a server's tokens (OAuth 2.1's grant types), as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ClientAuthentication: TypeAlias = Literal["client_secret_basic", "client_secret_post"]
"""How a client shows its secret to the authorization server: in a header, or in the body."""

AssertionSource: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Gives the identity assertion for an authorization server's issuer and a server's URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthLogin:
    """A person logs in once with a browser, by ``bridge login`` (authorization code with PKCE).

    Where no client is named, one is registered with the authorization server (by its metadata document where it has
    one, else dynamically), and kept.
    """

    client_id: str | None = None
    """The client that somebody has registered by hand; None for none."""
    client_secret: str | None = field(default=None, repr=False)
    """Its secret; None for a public client."""
    client_authentication: ClientAuthentication | None = None
    """How the secret is shown; None for what the authorization server takes."""
    client_metadata_url: str | None = None
    """Where the client describes itself (Client ID Metadata Documents); it is named by this where that is understood.
    """
    issuer: str | None = None
    """The authorization server that knows the client: no other is logged in to, or shown its secret."""
    scopes: tuple[str, ...] = ()
    """What to ask for; empty for what the server asks for."""
    redirect_uri: str | None = None
    """Where the browser goes afterwards: ``http`` on this machine. None for a free port."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may not be shown."""
        return (self.client_secret,) if self.client_secret else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """This program has credentials of its own, and nobody logs in (client credentials; RFC 7523 for a key)."""

    client_id: str
    """The client."""
    issuer: str
    """The authorization server that knows the client, and the only one that is shown its credentials."""
    client_secret: str | None = field(default=None, repr=False)
    """Its secret; None where it has a key."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """How the secret is shown."""
    private_key: str | None = field(default=None, repr=False)
    """The key that signs its assertions, as PEM; None where it has a secret."""
    signing_algorithm: str = "RS256"
    """What the key signs with, as JSON Web Algorithms call it."""
    scopes: tuple[str, ...] = ()
    """What to ask for; empty for what the server asks for."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may not be shown."""
        return tuple(secret for secret in (self.client_secret, self.private_key) if secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAssertion:
    """An identity provider vouches for a person or a workload (JWT bearer, RFC 7523, 2.1).

    Such are Enterprise-Managed Authorization, whose assertions `bridge.client.auth.assertions.exchange_assertion` gets,
    and Workload Identity Federation, whose assertions the platform gives.
    """

    client_id: str
    """The client that the authorization server knows."""
    issuer: str
    """The authorization server."""
    assertion: AssertionSource = field(repr=False)
    """Gives what the identity provider says."""
    client_secret: str | None = field(default=None, repr=False)
    """The client's secret; None for a public client."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """How the secret is shown."""
    scopes: tuple[str, ...] = ()
    """What to ask for; empty for what the server asks for."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may not be shown."""
        return (self.client_secret,) if self.client_secret else ()


Grant: TypeAlias = OAuthLogin | ClientCredentials | IdentityAssertion
"""How this side may come to a server's tokens."""

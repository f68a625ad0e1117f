"""OAuth 2.1 grant types, and credentials per caller of a gateway, as values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

import anyio

from bridge.client.auth.errors import SignInError
from bridge.tools.annotated_checks import check_fields

ClientAuthentication: TypeAlias = Literal["client_secret_basic", "client_secret_post"]
"""Method by which a client sends its secret to the authorization server: in a header, or in the body."""

AssertionSource: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Returns the identity assertion for an authorization server's issuer and an MCP server's URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedGrant:
    """Base of the grant types of a configuration; their secrets are the texts that ``repr()`` leaves out."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        values = [getattr(self, each.name) for each in fields(self) if not each.repr]
        return tuple(value for value in values if isinstance(value, str) and value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthLogin(_CheckedGrant):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials(_CheckedGrant):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityAssertion(_CheckedGrant):
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


@dataclass(frozen=True, slots=True)
class FileAssertion:
    """Assertion in a file, such as the token of a Kubernetes service account, which its platform renews."""

    path: str
    """Path of the file; it is read for each request of a token."""

    async def __call__(self, issuer: str, resource: str) -> str:  # noqa: ARG002 - those of an AssertionSource
        """Return the assertion.

        Raises:
            SignInError: The file cannot be read, or is no token.
        """
        try:
            text = (await anyio.Path(self.path).read_text(encoding="ascii")).strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not ASCII"
            raise SignInError(f"cannot read the assertion in {self.path!r}: {reason}", is_permanent=False) from None
        if not text or not text.isprintable():
            raise SignInError(f"{self.path!r} does not contain a token", is_permanent=False)
        return text


SubjectTokenType: TypeAlias = Literal["access_token", "id_token", "jwt"]
"""Kind of a caller's token that is exchanged (RFC 8693, section 3), without its prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExchange(_CheckedGrant):
    """The token of a gateway's caller is exchanged for one for the server (RFC 8693)."""

    token_url: str
    """Token endpoint."""
    client_id: str
    """The gateway's client ID there."""
    client_secret: str | None = field(default=None, repr=False)
    """Client secret; None for a public client, or one with a key."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """Method by which the secret is sent."""
    private_key: str | None = field(default=None, repr=False)
    """Private key that signs client assertions (RFC 7523), as PEM; None if it has a secret."""
    signing_algorithm: str = "RS256"
    """JSON Web Algorithm of the key."""
    audience: str | None = None
    """Logical name of the server at the authorization server; None for none."""
    resource: str | None = None
    """URL of the server as a resource indicator (RFC 8707); None for none."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty for those of the authorization server's choice."""
    subject_token_type: SubjectTokenType = "access_token"  # noqa: S105 - a kind of token
    """Kind of the callers' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangedToken:
    """A `TokenExchange` for one caller."""

    exchange: TokenExchange
    """The exchange."""
    subject_token: Callable[[], Awaitable[str]] = field(repr=False)
    """Returns the caller's token."""
    issuer: None = None
    """No authorization server is discovered."""

    @property
    def client_id(self) -> str:
        """Client ID."""
        return self.exchange.client_id

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes to request."""
        return self.exchange.scopes

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        return self.exchange.secrets


Grant: TypeAlias = OAuthLogin | ClientCredentials | IdentityAssertion | ExchangedToken
"""Any grant type of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionExchange(_CheckedGrant):
    """The token of a gateway's caller is exchanged for an identity assertion, and that for a token for the server.

    MCP extension ``io.modelcontextprotocol/enterprise-managed-authorization``: an ID-JAG of the identity provider
    (RFC 8693), then a JWT bearer grant at the server's authorization server (RFC 7523).
    """

    idp_token_url: str
    """Token endpoint of the identity provider."""
    client_id: str | None = None
    """The gateway's client ID at the server's authorization server; None for the URL of its metadata document."""
    client_secret: str | None = field(default=None, repr=False)
    """Client secret there; None for a public client."""
    client_authentication: ClientAuthentication = "client_secret_basic"
    """Method by which the secret is sent there."""
    idp_client_id: str | None = None
    """The gateway's client ID at the identity provider; None for the same."""
    idp_client_secret: str | None = field(default=None, repr=False)
    """Client secret at the identity provider; None for a public client."""
    issuer: str | None = None
    """The server's authorization server; None for the one that the server names."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty for those of the authorization server's choice."""
    subject_token_type: SubjectTokenType = "access_token"  # noqa: S105 - a kind of token
    """Kind of the callers' tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretHeader(_CheckedGrant):
    """Each caller of a gateway gives a key or token of its own, which is sent in a header."""

    name: str = "Authorization"
    """Name of the header."""
    template: str = "Bearer {secret}"
    """Value of the header, in which ``{secret}`` is replaced."""


@dataclass(frozen=True, slots=True)
class PerCaller:
    """Each caller of a gateway has a credential of its own for the server."""

    grant: OAuthLogin | TokenExchange | AssertionExchange | SecretHeader
    """Way to obtain it."""
    anonymous: Literal["refuse", "shared"] = "refuse"
    """Handling of callers without an identity: refuse them, or send the configured headers alone."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not be displayed."""
        return self.grant.secrets

    @property
    def kind(self) -> Literal["login", "exchange", "identity_assertion", "secret"]:
        """The ``type`` in the configuration."""
        match self.grant:
            case OAuthLogin():
                return "login"
            case TokenExchange():
                return "exchange"
            case AssertionExchange():
                return "identity_assertion"
            case SecretHeader():
                return "secret"

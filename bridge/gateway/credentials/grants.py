"""Protocols of the grants: ways to obtain a caller's credential for one server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.gateway.credentials.store import Credential, CredentialKey, GrantKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantDescription:
    """Description of a grant for the caller, without secrets."""

    server: str
    """Name of the server."""
    kind: GrantKind
    """``login`` or ``secret``."""
    address: str
    """The server's URL, redacted."""
    issuer: str | None = None
    """URL of the authorization server at which the caller logs in; None if it is not known before `Login.start`."""
    scopes: tuple[str, ...] = ()
    """Scopes that the login asks for; empty for those that the server asks for."""
    header: str | None = None
    """Name of the header in which a secret is sent; None for a login."""


@runtime_checkable
class CallerGrant(Protocol):
    """A grant that needs the caller in a browser: ``login`` or ``secret``."""

    server: str
    """Name of the server."""
    kind: GrantKind
    """``login`` or ``secret``."""

    def describe(self) -> GrantDescription:
        """Describe what the caller is asked for."""
        ...


@runtime_checkable
class LoginGrant(CallerGrant, Protocol):
    """The caller logs in at the server's authorization server (authorization code with PKCE)."""

    async def start(self, key: CredentialKey, redirect_uri: str, state: str, *, scope: str | None = None) -> str:
        """Start a login.

        Args:
            key: Caller and server.
            redirect_uri: URL of the gateway to which the authorization server sends the browser back.
            state: Unguessable value, for one login; it is returned as the parameter ``state``.
            scope: Scopes to ask for beside the usual ones, of `CredentialNeededError`; None for none.

        Returns:
            URL of the authorization server's page.

        Raises:
            SignInError: The server names no usable authorization server, or it cannot be reached.
        """
        ...

    async def finish(self, key: CredentialKey, parameters: Mapping[str, str]) -> Credential:
        """Exchange the authorization code for tokens, once for a login.

        Args:
            key: Caller and server, as for `start`.
            parameters: Query parameters of the redirect: ``state``, ``code``, ``iss``, or ``error``.

        Raises:
            SignInError: No login with this state was started by this caller, or it has ended; ``iss`` is not that of
                the authorization server; or the login was refused.
        """
        ...


@runtime_checkable
class SecretGrant(CallerGrant, Protocol):
    """The caller gives a key or token of its own."""

    async def accept_secret(self, key: CredentialKey, text: str) -> Credential:
        """Check the form of a secret, and return it as a credential.

        Raises:
            SignInError: It is empty, or cannot be sent in a header; the message does not contain it.
        """
        ...

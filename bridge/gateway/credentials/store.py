"""Keys and credentials of callers, and the protocol of their stores."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from bridge.client.auth.login import Login

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.tools.caller import Caller
    from bridge.types import Json

GrantKind: TypeAlias = Literal["login", "exchange", "identity_assertion", "secret"]
"""Way to obtain a caller's credential: the ``type`` of a server's ``auth`` with ``"per": "caller"``."""


CHECK_SECONDS = 5.0
"""Seconds after which a credential in use is looked up again, as another process may have deleted it."""


@dataclass(frozen=True, slots=True)
class CredentialKey:
    """Caller and server of one credential."""

    issuer: str
    """Issuer of the caller's credential at the gateway; ``key`` for an API key, empty if its issuer is unknown."""
    subject: str
    """The caller's identifier, unique within the issuer."""
    server: str
    """Name of the server in the configuration."""

    @classmethod
    def of(cls, caller: Caller, server: str) -> Self:
        """Return the key of an authenticated caller for a server."""
        return cls(*caller.identity, server)


class Credential(BaseModel):
    """One caller's credential for one server. Its repr hides values."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    kind: GrantKind
    """Way by which it was obtained."""
    login: Login | None = Field(default=None, repr=False)
    """Tokens, and what their renewal and revocation need; None for a secret."""
    secret: str | None = Field(default=None, repr=False)
    """The key or token that the caller gave; None for tokens of an authorization server."""
    made_at: float = Field(default_factory=time.time)
    """Time at which the caller gave or obtained it, in seconds since 1970; a refresh keeps it."""

    @property
    def value(self) -> str | None:
        """The access token or the secret; None once a login has ended."""
        return self.secret if self.login is None else self.login.access_token

    @property
    def expires_at(self) -> float | None:
        """Expiry of the access token, in seconds since 1970; None if unknown."""
        return None if self.login is None else self.login.expires_at


@dataclass(frozen=True, slots=True)
class CredentialRecord:
    """Description of a kept credential, without its value."""

    key: CredentialKey
    """Caller and server."""
    kind: GrantKind
    """Way by which it was obtained."""
    made_at: float
    """Time at which it was obtained, in seconds since 1970."""
    changed_at: float
    """Time of the last change, such as a refresh, in seconds since 1970."""
    expires_at: float | None
    """Expiry of its access token, in seconds since 1970; None if unknown."""


class CredentialStore(Protocol):
    """Keeps callers' credentials, encrypted, for all processes and replicas of a gateway.

    Also keeps values that may be used once, within minutes: the state of a login under way, and links. Every method
    raises `CredentialStoreError` if the store cannot be used.
    """

    async def open(self) -> None:
        """Open the store; a store that is open stays so."""
        ...

    async def close(self) -> None:
        """Close the store; it may be opened again."""
        ...

    async def get(self, key: CredentialKey) -> Credential | None:
        """Return a credential; None if there is none, or none that the store's encryption keys can read."""
        ...

    async def put(self, key: CredentialKey, credential: Credential) -> None:
        """Add or replace a credential; it survives a crash once this returns."""
        ...

    async def update(self, key: CredentialKey, credential: Credential) -> bool:
        """Replace a credential by its renewal; return False, without adding it, if it was deleted meanwhile."""
        ...

    async def delete(self, key: CredentialKey) -> bool:
        """Delete a credential; return True if there was one."""
        ...

    async def list(
        self, *, issuer: str | None = None, subject: str | None = None, server: str | None = None
    ) -> Sequence[CredentialRecord]:
        """Return the descriptions of credentials, by caller and server; None selects all.

        Those without a subject, which belong to the gateway itself, are left out.
        """
        ...

    async def acquire(self, key: CredentialKey, holder: str, seconds: float) -> bool:
        """Take the exclusive right to renew a credential, unless another holder has it.

        Args:
            key: Caller and server.
            holder: Random name of the holder.
            seconds: Time after which the right ends by itself, as its holder may have died.

        Returns:
            True if the holder has the right now.
        """
        ...

    async def release(self, key: CredentialKey, holder: str) -> None:
        """Give the right of `acquire` back; nothing happens if the holder no longer has it."""
        ...

    async def put_once(self, name: str, value: Json, seconds: float) -> None:
        """Keep a value under a secret, unguessable name for some seconds. The name is only kept as a digest."""
        ...

    async def find_once(self, name: str) -> Json | None:
        """Return a value of `put_once`, which stays; None if it was taken or has expired."""
        ...

    async def take_once(self, name: str) -> Json | None:
        """Remove and return a value of `put_once`, for one taker among all replicas; None as for `find_once`."""
        ...

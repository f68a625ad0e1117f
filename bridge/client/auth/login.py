"""A stored login, and the SDK's token storage for it."""

from __future__ import annotations

import time
from typing import Literal

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, Field

from bridge.client.auth.dpop import ProofKey

_MAX_MARGIN_SECONDS = 30.0
"""Maximum seconds before its expiry at which a token is renewed."""

_MARGIN_OF_LIFETIME = 0.1


class Login(BaseModel):
    """One stored login. Its repr hides secrets."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = 1
    """Format version of the stored login."""
    server_url: str
    """The server's URL without secrets."""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    """The registered client."""
    tokens: OAuthToken | None = Field(default=None, repr=False)
    """The tokens; None if they are no longer valid."""
    expires_at: float | None = None
    """Expiry of the access token, in seconds since 1970; None if unknown."""
    metadata: OAuthMetadata | None = Field(default=None, repr=False)
    """Authorization server metadata (RFC 8414)."""
    resource: ProtectedResourceMetadata | None = Field(default=None, repr=False)
    """Protected resource metadata (RFC 9728)."""
    wanted_scope: str | None = None
    """Scopes that the server has asked for since and the tokens lack."""
    proof_key: ProofKey | None = Field(default=None, repr=False)
    """The key that the tokens are bound to; None for bearer tokens."""

    @property
    def access_token(self) -> str | None:
        """The access token; None for none."""
        return self.tokens.access_token if self.tokens is not None else None

    @property
    def can_be_refreshed(self) -> bool:
        """True if the access token can be renewed without a user."""
        return self.tokens is not None and self.tokens.refresh_token is not None and self.client is not None

    @property
    def is_stale(self) -> bool:
        """True if the access token has expired or expires soon."""
        if self.expires_at is None:
            return False
        lifetime_seconds = self.tokens.expires_in if self.tokens is not None else None
        margin = min(_MAX_MARGIN_SECONDS, (lifetime_seconds or 0) * _MARGIN_OF_LIFETIME)
        return time.time() >= self.expires_at - margin

    @property
    def has_ended(self) -> bool:
        """True if the access token has expired."""
        return self.expires_at is not None and time.time() >= self.expires_at

    def renewed(self, tokens: OAuthToken | None) -> Login:
        """Copy the login with newly issued tokens."""
        expires_in = tokens.expires_in if tokens is not None else None
        expires_at = None if expires_in is None else time.time() + expires_in
        return self.model_copy(update={"tokens": tokens, "expires_at": expires_at})


class SdkTokenStorage:
    """In-memory token storage for the SDK's clients (the SDK's TokenStorage)."""

    def __init__(self, client: OAuthClientInformationFull | None, tokens: OAuthToken | None) -> None:
        self.client = client
        self.tokens = tokens
        self.has_new_tokens = False

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store new tokens."""
        self.tokens = tokens
        self.has_new_tokens = True

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registered client."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registered client."""
        self.client = client_info

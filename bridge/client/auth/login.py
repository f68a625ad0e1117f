"""Login: what is known of one login: the client, its tokens, and where they can be renewed."""

from __future__ import annotations

import time
from typing import Literal

from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, Field

from bridge.client.auth.dpop import ProofKey

_MAX_MARGIN_SECONDS = 30.0
"""How long before its end a token is renewed, at most."""
_MARGIN_OF_LIFETIME = 0.1


class Login(BaseModel):
    """One login, as it is kept. Its repr shows nothing secret."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = 1
    """Of the form in which it is kept."""
    server_url: str
    """The server, without what may be secret in its URL."""
    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    """The client that the authorization server knows."""
    tokens: OAuthToken | None = Field(default=None, repr=False)
    """The tokens; None where they are no good any more."""
    expires_at: float | None = None
    """When the access token ends, in seconds since 1970; None where nobody said."""
    metadata: OAuthMetadata | None = Field(default=None, repr=False)
    """What the authorization server says of itself (RFC 8414)."""
    resource: ProtectedResourceMetadata | None = Field(default=None, repr=False)
    """What the server says of itself (RFC 9728)."""
    wanted_scope: str | None = None
    """What the server has asked for since, and the tokens do not have."""
    proof_key: ProofKey | None = Field(default=None, repr=False)
    """The key that the tokens are bound to; None where whoever has them may use them."""

    @property
    def access_token(self) -> str | None:
        """What requests are signed with; None for nothing."""
        return self.tokens.access_token if self.tokens is not None else None

    @property
    def can_be_refreshed(self) -> bool:
        """Whether the access token can be renewed without a person."""
        return self.tokens is not None and self.tokens.refresh_token is not None and self.client is not None

    @property
    def is_stale(self) -> bool:
        """Whether the access token has ended, or soon will have."""
        if self.expires_at is None:
            return False
        lifetime_seconds = self.tokens.expires_in if self.tokens is not None else None
        margin = min(_MAX_MARGIN_SECONDS, (lifetime_seconds or 0) * _MARGIN_OF_LIFETIME)
        return time.time() >= self.expires_at - margin

    @property
    def has_ended(self) -> bool:
        """Whether the access token has ended."""
        return self.expires_at is not None and time.time() >= self.expires_at

    def renewed(self, tokens: OAuthToken | None) -> Login:
        """The login with other tokens, which have just come."""
        expires_in = tokens.expires_in if tokens is not None else None
        expires_at = None if expires_in is None else time.time() + expires_in
        return self.model_copy(update={"tokens": tokens, "expires_at": expires_at})
